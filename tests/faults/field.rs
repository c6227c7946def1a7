//! JSON that says where it is wrong: every value knows its file and its place in it.

use serde_json::{Map, Value};
use std::fmt::Display;
use std::ops::RangeInclusive;

/// A value and its path, like `plans/cut.json: steps[2].process`.
#[derive(Clone)]
pub(crate) struct Field<'a> {
    file: &'a str,
    path: String,
    value: &'a Value,
}

impl<'a> Field<'a> {
    pub(crate) fn root(file: &'a str, value: &'a Value) -> Self {
        Field { file, path: String::new(), value }
    }

    /// The error that something is wrong here.
    pub(crate) fn wrong(&self, what: impl Display) -> String {
        let path = if self.path.is_empty() { "the whole" } else { &self.path };
        format!("{}: {path}: {what}", self.file)
    }

    /// The members, none of them another than `known`.
    pub(crate) fn object(&self, known: &[&str]) -> Result<(), String> {
        let unknown = self.members()?.keys().find(|name| !known.contains(&name.as_str()));
        match unknown {
            Some(name) => Err(self.below(name, self.value).wrong(format!("unknown; there is {}", known.join(", ")))),
            None => Ok(()),
        }
    }

    pub(crate) fn entries(&self) -> Result<Vec<(&'a str, Field<'a>)>, String> {
        Ok(self.members()?.iter().map(|(name, value)| (name.as_str(), self.below(name, value))).collect())
    }

    pub(crate) fn of(&self, name: &str) -> Result<Field<'a>, String> {
        self.find(name)?.ok_or_else(|| self.below(name, self.value).wrong("missing"))
    }

    pub(crate) fn find(&self, name: &str) -> Result<Option<Field<'a>>, String> {
        Ok(self.members()?.get(name).map(|value| self.below(name, value)))
    }

    pub(crate) fn list(&self) -> Result<Vec<Field<'a>>, String> {
        let list = self.value.as_array().ok_or_else(|| self.wrong("must be a list"))?;
        let at = |(nth, value)| Field { file: self.file, path: format!("{}[{nth}]", self.path), value };
        Ok(list.iter().enumerate().map(at).collect())
    }

    pub(crate) fn text(&self) -> Result<&'a str, String> {
        self.value.as_str().ok_or_else(|| self.wrong("must be a text"))
    }

    pub(crate) fn flag(&self) -> Result<bool, String> {
        self.value.as_bool().ok_or_else(|| self.wrong("must be true or false"))
    }

    pub(crate) fn number(&self, range: RangeInclusive<u64>) -> Result<u64, String> {
        let number = self.value.as_u64().filter(|number| range.contains(number));
        number.ok_or_else(|| self.wrong(format!("must be a number from {} to {}", range.start(), range.end())))
    }

    /// What `words` has beside this text.
    pub(crate) fn one_of<T: Copy>(&self, words: &[(&str, T)]) -> Result<T, String> {
        let text = self.text()?;
        words.iter().find(|(word, _)| *word == text).map(|(_, meaning)| *meaning).ok_or_else(|| {
            let words: Vec<_> = words.iter().map(|(word, _)| *word).collect();
            self.wrong(format!("\"{}\" is none of {}", text.escape_debug(), words.join(", ")))
        })
    }

    fn members(&self) -> Result<&'a Map<String, Value>, String> {
        self.value.as_object().ok_or_else(|| self.wrong("must be an object"))
    }

    fn below(&self, name: &str, value: &'a Value) -> Field<'a> {
        let dot = if self.path.is_empty() { "" } else { "." };
        Field { file: self.file, path: format!("{}{dot}{name}", self.path), value }
    }
}
