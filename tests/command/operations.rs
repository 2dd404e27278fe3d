//! `docs/operations.md` against the sources and the binary.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use crate::running::admit_one;

/// Variants, by the error's name; those of a struct are its own name.
type Errors = BTreeMap<String, BTreeSet<String>>;

fn page() -> String {
    fs::read_to_string(root().join("docs/operations.md")).expect("the page is there")
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The library's own sources, without those of tests and of the command.
fn sources(under: &Path, into: &mut Vec<(PathBuf, String)>) {
    for entry in fs::read_dir(under).expect("a directory") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if path.is_dir() && !["tests", "model", "simulation", "command"].contains(&name.as_str()) {
            sources(&path, into);
        } else if name.ends_with(".rs") && !name.ends_with("tests.rs") {
            into.push((path.clone(), fs::read_to_string(&path).expect("it reads")));
        }
    }
}

/// Every public error of the sources. Two that share a name are told apart by their module.
fn declared() -> Errors {
    let mut found = Vec::new();
    sources(&root().join("src"), &mut found);
    assert!(found.len() > 100);
    let mut errors = Errors::new();
    for (path, text) in found {
        for (place, derive) in text.match_indices("thiserror::Error)]") {
            let rest = &text[place + derive.len()..];
            let Some(line) = rest.lines().find(|line| line.contains("enum ") || line.contains("struct ")) else {
                continue;
            };
            let Some((kind, name)) = line.strip_prefix("pub ").and_then(|line| line.split_once(' ')) else { continue };
            let name: String = name.chars().take_while(|letter| letter.is_alphanumeric()).collect();
            let variants = if kind == "enum" {
                let body = &rest[rest.find(line).expect("just found") + line.len()..];
                let body = &body[..body.find("\n}").expect("an end")];
                let variant = |line: &str| {
                    let line = line.strip_prefix("    ")?;
                    let name: String = line.chars().take_while(|letter| letter.is_alphanumeric()).collect();
                    name.starts_with(|first: char| first.is_uppercase()).then_some(name)
                };
                body.lines().filter_map(variant).collect()
            } else {
                BTreeSet::from([name.clone()])
            };
            let module =
                if path.components().any(|part| part.as_os_str() == "single_use") { "single_use" } else { "layer" };
            let name = if name == "Refusal" { format!("{module}::{name}") } else { name };
            assert!(errors.insert(name.clone(), variants).is_none(), "two errors are called {name}");
        }
    }
    errors
}

/// What stands between backticks.
fn named(text: &str) -> BTreeSet<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn every_public_error_has_its_cause_and_cure_on_the_page_and_no_other() {
    let page = page();
    let (_, section) = page.split_once("\n## Errors\n").expect("the section");
    let declared = declared();
    assert!(declared.len() > 30);
    let mut documented = BTreeSet::new();
    for part in section.split("\n### ").skip(1) {
        let (heading, rest) = part.split_once('\n').expect("a heading");
        let errors = if heading == "Of one kind" {
            declared
                .iter()
                .filter(|(name, variants)| variants.iter().eq([*name]))
                .map(|(name, _)| name.clone())
                .collect()
        } else {
            named(heading)
        };
        let mut rows = BTreeSet::new();
        for line in rest.lines().filter(|line| line.starts_with("| `")) {
            let cells = line.split(" | ").collect::<Vec<_>>();
            assert!(cells.len() == 3 && cells[1].len() > 5, "cause and cure: {line}");
            rows.append(&mut named(cells[0]));
        }
        let mut expected = BTreeSet::new();
        for error in errors {
            let variants = declared.get(&error).unwrap_or_else(|| panic!("{error} is not in the sources"));
            expected.extend(variants.iter().cloned());
            assert!(documented.insert(error.clone()), "{error} is described twice");
        }
        assert_eq!(rows, expected, "under {heading}");
    }
    let missing = declared.keys().filter(|name| !documented.contains(*name)).collect::<Vec<_>>();
    assert!(missing.is_empty(), "{missing:?} are not on the page");
}

#[test]
fn every_command_on_the_page_is_one() {
    let page = page();
    let commands = page.split('`').filter(|text| text.starts_with("admit-one ")).collect::<BTreeSet<_>>();
    assert!(commands.len() > 3);
    for command in commands {
        let words = command.split_whitespace().skip(1).take_while(|word| word.chars().all(|c| c.is_ascii_lowercase()));
        let words = words.take(2).collect::<Vec<_>>();
        let help = admit_one(&[&words[..], &["--help"]].concat()).output().expect("it runs");
        assert!(help.status.success(), "{command}");
        let help = String::from_utf8(help.stdout).expect("text");
        for option in command.split_whitespace().filter(|word| word.starts_with("--")) {
            assert!(help.contains(option), "{option} of {command}");
        }
    }
}
