//! What the sources count, against `docs/metrics.md` (law L13.5).

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// Kind and label keys, by name.
type Metrics = BTreeMap<String, (String, BTreeSet<String>)>;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn page() -> String {
    fs::read_to_string(root().join("docs/metrics.md")).expect("the page is there")
}

/// The crate's own sources, without those of tests.
fn sources(under: &Path, into: &mut Vec<(PathBuf, String)>) {
    for entry in fs::read_dir(under).expect("a directory") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if path.is_dir() && !["tests", "model", "simulation"].contains(&name.as_str()) {
            sources(&path, into);
        } else if name.ends_with(".rs") && !name.ends_with("tests.rs") {
            let text = fs::read_to_string(&path).expect("it reads");
            into.push((path, text));
        }
    }
}

fn all_sources() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    sources(&root().join("src"), &mut found);
    assert!(found.len() > 100);
    found
}

/// What stands between double quotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('"').skip(1).step_by(2)
}

/// What stands between backticks.
fn named(text: &str) -> BTreeSet<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn counted() -> Metrics {
    let mut metrics = Metrics::new();
    for (path, text) in all_sources() {
        for (kind, place) in ["counter", "gauge", "histogram"].into_iter().flat_map(|kind| {
            text.match_indices(&format!("{kind}!(")).map(move |(place, _)| (kind, place)).collect::<Vec<_>>()
        }) {
            let rest = &text[place..];
            let call = &rest[..rest.find(';').expect("a statement")];
            let name = quoted(call).next().unwrap_or_else(|| panic!("{}: a name that is no literal", path.display()));
            let labels =
                call.match_indices(" =>").filter_map(|(end, _)| quoted(&call[..end]).last().map(str::to_owned));
            let entry = (kind.to_owned(), labels.collect());
            let before = metrics.insert(name.to_owned(), entry.clone());
            assert!(before.is_none_or(|before| before == entry), "{name} is counted in two ways");
        }
    }
    metrics
}

#[test]
fn l13_5_every_metric_is_on_its_page_with_its_kind_and_labels_and_no_other() {
    let page = page();
    let documented: Metrics = page
        .lines()
        .filter(|line| line.starts_with("| `admit_one_"))
        .map(|line| {
            let cells: Vec<_> = line.split('|').map(str::trim).collect();
            assert!(cells.len() == 6 && !cells[4].is_empty(), "{line}");
            (cells[1].trim_matches('`').to_owned(), (cells[2].to_owned(), named(cells[3])))
        })
        .collect();
    let counted = counted();
    assert!(counted.len() > 30);
    assert_eq!(counted, documented);
}

/// The values that `label` functions in `file` give, from the `nth` of them.
fn labels(file: &str, nth: usize) -> BTreeSet<String> {
    let text = fs::read_to_string(root().join("src").join(file)).expect("it reads");
    let start = text.match_indices("fn label(").nth(nth).expect("it labels").0;
    let body = &text[start..];
    let body = &body[..body.find("\n    }\n").expect("an end")];
    quoted(body).map(str::to_owned).collect()
}

#[test]
fn every_reason_of_a_refusal_is_on_the_page_and_no_other() {
    let page = page();
    let (others, reasons) = page.split_once("## Reasons of refusals").expect("the section");
    let of_layer = labels("layer/refusal.rs", 0);
    let of_boundary = labels("layer/boundary/mod.rs", 0);
    assert!(of_boundary.is_subset(&of_layer), "a refusal has one name, whoever counts it");
    let of_chunks = labels("layer/reassembly/refusal.rs", 0);
    let of_mail = labels("layer/custody/refusal.rs", 0);
    let all = [of_layer, of_chunks, of_mail].into_iter().flatten().collect::<BTreeSet<_>>();
    assert_eq!(all, named(reasons));

    let others = named(others);
    let files = [
        ("layer/reassembly/refusal.rs", 1),
        ("layer/charging/mod.rs", 0),
        ("lanes/event.rs", 0),
        ("lanes/settlement.rs", 0),
        ("message/class.rs", 0),
    ];
    for (file, nth) in files {
        let missing: Vec<_> = labels(file, nth).difference(&others).cloned().collect();
        assert!(missing.is_empty(), "{file}: {missing:?}");
    }
    // Nothing else labels.
    let labelling = all_sources().iter().map(|(_, text)| text.matches("fn label(").count()).sum::<usize>();
    assert_eq!(labelling, files.len() + 4);
}

/// Law L12.7: a code is stable, and a page tells it.
#[test]
fn every_code_of_a_single_use_refusal_is_on_the_page_and_no_other() {
    let page = page();
    let (_, section) = page.split_once("## Codes of single-use refusals").expect("the section");
    let (section, _) = section.split_once("\n## ").expect("an end");
    let text = fs::read_to_string(root().join("src/layer/single_use/refusal.rs")).expect("it reads");
    let start = text.find("pub const fn code(").expect("it has codes");
    let body = &text[start..];
    let body = &body[..body.find("\n    }\n").expect("an end")];
    let codes: BTreeSet<String> = quoted(body).map(str::to_owned).collect();
    let (_, listed) = section.split_once("\n- ").expect("a list");
    assert!(codes.len() > 15);
    assert_eq!(codes, named(listed));
}
