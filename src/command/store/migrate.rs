//! `store migrate`: every record copied to another store, and compared.

use admit_one::operator;

use super::{bar, document, follow, open};
use crate::command::{
    arguments::Migrate,
    exit::{Exit, Failure},
    output::Done,
};

pub(super) async fn run(asked: &Migrate) -> Result<Done, Failure> {
    let Migrate { from, to } = asked;
    let source = open(from).await?;
    let target = to.open().await?;
    let bar = bar();
    let migrated = operator::migrate(&*source, &*target, follow(&bar)).await;
    bar.finish_and_clear();
    let migrated = migrated?;
    let text =
        format!("{migrated}\n{to} holds what {from} holds: start the node on it, and never again on the other\n");
    Ok(Done { exit: Exit::Done, json: document(&migrated)?, text })
}
