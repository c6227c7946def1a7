//! What the sources cite as proof exists: every model, mutant and test that an `ord!` note or `docs::internals` names.

use std::fs;
use std::path::{Path, PathBuf};

fn files(under: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join(under)];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { open.push(path) } else { found.push(path) }
        }
    }
    found
}

fn text(path: impl AsRef<Path>) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

fn is_mutant(name: &str) -> bool {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("loom-tests/mutants/{name}.mutant")).exists()
}

/// `bays::some_rule` is a test of `loom-tests/bays.rs` or of `tests/spec/bays.rs`.
fn is_test(path: &str) -> bool {
    let Some((file, test)) = path.split_once("::") else { return false };
    ["loom-tests", "tests/spec"].iter().any(|folder| {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("{folder}/{file}.rs"));
        fs::read_to_string(file).is_ok_and(|text| defines(&text, test))
    })
}

/// A test that runs over several transports is generic.
fn defines(text: &str, test: &str) -> bool {
    text.contains(&format!("fn {test}(")) || text.contains(&format!("fn {test}<"))
}

/// Comments, each with its lines joined.
fn notes(text: &str) -> Vec<String> {
    let mut notes = vec![String::new()];
    for line in text.lines().map(str::trim_start) {
        match line.strip_prefix("//") {
            Some(comment) => notes.last_mut().unwrap().push_str(&format!(" {}", comment.trim())),
            None => notes.push(String::new()),
        }
    }
    notes
}

#[test]
fn every_ordering_note_names_models_and_mutants_that_exist() {
    let mut checked = 0;
    for file in files("src") {
        for note in notes(&fs::read_to_string(&file).unwrap()) {
            for cited in note.split(" model: ").skip(1) {
                let model = cited.split_whitespace().next().unwrap().trim_end_matches(['.', ',']);
                assert!(is_test(model), "{}: no model {model}", file.display());
                let Some((_, mutants)) = cited.split_once("fails if: ") else { continue };
                for mutant in mutants.split([',', ' ', '.']).map(str::trim).filter(|cited| cited.contains('-')) {
                    assert!(is_mutant(mutant), "{}: no mutant {mutant}", file.display());
                    checked += 1;
                }
                checked += 1;
            }
        }
    }
    assert!(checked > 40, "only {checked} were found: the notes look otherwise by now");
}

/// Where no model can look, a test is cited: of `tests/spec`, or a case, wherever it is.
#[test]
fn every_ordering_note_names_tests_that_exist() {
    let is_case =
        |test: &str| files("tests").iter().any(|file| fs::read_to_string(file).is_ok_and(|text| defines(&text, test)));
    let mut checked = 0;
    for file in files("src") {
        for note in notes(&fs::read_to_string(&file).unwrap()) {
            for cited in note.split(" test: ").skip(1) {
                let test = cited.split_whitespace().next().unwrap().trim_end_matches(['.', ',']);
                assert!(is_test(test) || is_case(test), "{}: no test {test}", file.display());
                checked += 1;
            }
        }
    }
    assert!(checked > 0, "none was found: the notes look otherwise by now");
}

#[test]
fn the_proof_names_models_mutants_and_files_that_exist() {
    let proof = text("src/docs/internals.rs");
    let (mut tests, mut mutants) = (0, 0);
    for cited in proof.split('`').skip(1).step_by(2) {
        let lower = |also: &[char]| cited.chars().all(|c| c.is_ascii_lowercase() || also.contains(&c));
        if cited.ends_with(".rs") || cited.ends_with(".md") {
            let root = Path::new(env!("CARGO_MANIFEST_DIR"));
            assert!(root.join(cited).exists() || root.join("src").join(cited).exists(), "no file {cited}");
        } else if cited.contains("::") && lower(&['_', ':']) && !is_of_the_source(cited) {
            assert!(is_test(cited), "no model {cited}");
            tests += 1;
        } else if cited.contains('-') && lower(&['-']) {
            assert!(is_mutant(cited), "no mutant {cited}");
            mutants += 1;
        }
    }
    assert!(tests > 20 && mutants > 40, "only {tests} models and {mutants} mutants were found");
}

/// `lane::take_drained` is a function of `src/lane.rs`.
fn is_of_the_source(path: &str) -> bool {
    let Some((file, function)) = path.split_once("::") else { return false };
    [format!("src/{file}.rs"), format!("src/{file}/mod.rs")].iter().any(|file| {
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file))
            .is_ok_and(|text| text.contains(&format!("fn {function}")))
    })
}

/// `Slot::enter_if` and the like: the proof names methods that exist.
#[test]
fn the_proof_names_methods_that_exist() {
    let source: String = files("src").iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    let mut checked = 0;
    for cited in text("src/docs/internals.rs").split('`').skip(1).step_by(2) {
        let Some((of, method)) = cited.split_once("::") else { continue };
        let is_type = of.starts_with(|c: char| c.is_ascii_uppercase()) && of.chars().all(char::is_alphanumeric);
        if is_type && method.chars().all(|c| c.is_ascii_lowercase() || c == '_') {
            assert!(source.contains(&format!("fn {method}")), "no method {cited}");
            checked += 1;
        }
    }
    assert!(checked > 20, "only {checked} were found");
}
