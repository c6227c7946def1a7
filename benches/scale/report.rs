//! The numbers, as a table for people and as lines for programs.

use crate::SIZES;
use crate::lines::Lines;
use serde_json::json;
use std::error::Error;

#[derive(Default)]
pub(crate) struct Report {
    rows: Vec<Row>,
}

struct Row {
    case: &'static str,
    unit: &'static str,
    /// By size.
    values: Vec<(usize, f64)>,
}

impl Report {
    pub(crate) fn add(&mut self, case: &'static str, peers: usize, value: f64, unit: &'static str) {
        match self.rows.iter_mut().find(|row| row.case == case) {
            Some(row) => row.values.push((peers, value)),
            None => self.rows.push(Row { case, unit, values: vec![(peers, value)] }),
        }
    }

    pub(crate) fn value(&self, case: &str, peers: usize) -> f64 {
        let row = self.rows.iter().find(|row| row.case == case).expect("a case of this run");
        row.values.iter().find(|(of, _)| *of == peers).expect("a size of this run").1
    }

    pub(crate) fn print(&self) {
        let sizes: Vec<_> = SIZES.iter().map(|peers| format!(" {peers} peers |")).collect();
        println!("| case | unit |{}\n|---|---|{}", sizes.concat(), "---|".repeat(SIZES.len()));
        for Row { case, unit, values } in &self.rows {
            let cells: Vec<_> = values.iter().map(|(_, value)| format!(" {value:.2} |")).collect();
            println!("| {case} | {unit} |{}", cells.concat());
        }
    }

    pub(crate) fn put(&self, lines: &mut Lines) -> Result<(), Box<dyn Error>> {
        for Row { case, unit, values } in &self.rows {
            for (peers, value) in values {
                lines.put(case, json!({ "peers": peers, "value": value, "unit": unit }))?;
            }
        }
        Ok(())
    }
}
