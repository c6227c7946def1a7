//! One number that a scenario has come to, and what it may be.

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Finding {
    /// In lower case, with `_` between words.
    pub(crate) name: &'static str,
    pub(crate) value: f64,
    pub(crate) bound: Bound,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Bound {
    /// For people.
    None,
    /// More is a problem.
    AtMost(f64),
    /// Less is a problem.
    AtLeast(f64),
    /// What it should be on a machine that is not busy; it decides nothing.
    Expected(f64),
}

impl Finding {
    pub(crate) fn new(name: &'static str, value: impl Into<f64>, bound: Bound) -> Self {
        Finding { name, value: value.into(), bound }
    }

    pub(crate) fn problem(&self) -> Option<String> {
        let good = match self.bound {
            Bound::AtMost(most) => self.value <= most,
            Bound::AtLeast(least) => self.value >= least,
            Bound::None | Bound::Expected(_) => true,
        };
        (!good).then(|| format!("{} is {}", self.words(), self.cell()))
    }

    pub(crate) fn words(&self) -> String {
        self.name.replace('_', " ")
    }

    /// The number and its bound, for people.
    pub(crate) fn cell(&self) -> String {
        match self.bound() {
            Some((word, bound)) => format!("{} ({} {bound})", self.value, word.replace('_', " ")),
            None => self.value.to_string(),
        }
    }

    /// The same for programs.
    pub(crate) fn json(&self) -> String {
        match self.bound() {
            Some((word, bound)) => format!(r#"{{"value":{},"{word}":{bound}}}"#, self.value),
            None => format!(r#"{{"value":{}}}"#, self.value),
        }
    }

    fn bound(&self) -> Option<(&'static str, f64)> {
        match self.bound {
            Bound::None => None,
            Bound::AtMost(bound) => Some(("at_most", bound)),
            Bound::AtLeast(bound) => Some(("at_least", bound)),
            Bound::Expected(bound) => Some(("expected", bound)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_beyond_its_bound_is_a_problem_and_one_without_a_bound_never_is() {
        let problem = |value: f64, bound| Finding::new("some_number", value, bound).problem();
        assert_eq!(problem(3.0, Bound::AtMost(3.0)), None);
        assert_eq!(problem(4.0, Bound::AtMost(3.0)).unwrap(), "some number is 4 (at most 3)");
        assert_eq!(problem(3.0, Bound::AtLeast(3.0)), None);
        assert_eq!(problem(2.5, Bound::AtLeast(3.0)).unwrap(), "some number is 2.5 (at least 3)");
        assert_eq!((problem(9.0, Bound::Expected(1.0)), problem(9.0, Bound::None)), (None, None));
    }

    #[test]
    fn it_is_json_with_its_bound() {
        let json = |bound| serde_json::from_str::<serde_json::Value>(&Finding::new("n", 2.5, bound).json()).unwrap();
        assert_eq!(json(Bound::None), serde_json::json!({"value": 2.5}));
        assert_eq!(json(Bound::AtMost(3.0)), serde_json::json!({"value": 2.5, "at_most": 3}));
    }
}
