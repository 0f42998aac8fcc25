//! Packages labelled with the packages they are meant to work with.
//!
//! A document is a package; its labels are the packages it names in `Depends`, `Recommends`,
//! `Suggests` and `Enhances`, all alternatives of `a | b`, whatever their version. Names of virtual
//! packages, which nobody describes, are dropped. A label is called by its one-line description,
//! with the package's name as an alias, and has the long description as its own.
//!
//! The lists have to be known whole before the first document can be written, so all packages are
//! held: about 1.5 KiB each, 100 MiB for all of Debian.

use rustc_hash::{FxHashMap, FxHashSet};

use super::lists::{Lists, Package};
use super::{Debian, document_of};
use crate::data::error::{DataError, Place};
use crate::data::import::ImportContext;
use crate::data::import::intake::Intake;
use crate::data::label::Label;
use crate::data::writer::TaskWriter;
use crate::progress::Stage;

const RELATIONS: [&str; 4] = ["Depends", "Recommends", "Suggests", "Enhances"];

/// Writes packages and the packages they go with to `task`.
pub(super) fn import(
    debian: &Debian,
    lists: &Lists,
    task: &mut TaskWriter,
    context: &ImportContext<'_>,
) -> Result<(), DataError> {
    let mut packages: Vec<(Package, String)> = Vec::new();
    let stage = Stage::start(context.progress, "reading packages", None);
    lists.visit(context, |package, entry| {
        let relations: Vec<&str> =
            RELATIONS.iter().filter_map(|name| entry.field(name)).map(|field| field.value.as_str()).collect();
        packages.push((package, relations.join(",")));
        stage.step();
        Ok(())
    })?;
    stage.finish();
    let positions: FxHashMap<&str, usize> = packages
        .iter()
        .enumerate()
        .map(|(position, (package, _))| (package.name.as_str(), position))
        .collect();
    let related: Vec<Vec<usize>> = packages
        .iter()
        .enumerate()
        .map(|(own, (_, relations))| {
            let mut named = FxHashSet::default();
            names_in(relations)
                .filter_map(|name| positions.get(name).copied())
                .filter(|&other| other != own && named.insert(other))
                .collect()
        })
        .collect();
    let mut is_label = vec![false; packages.len()];
    related.iter().flatten().for_each(|&other| is_label[other] = true);
    let names: Vec<String> = packages.iter().map(|(package, _)| package.name.clone()).collect();

    let mut intake = Intake::new(task, context);
    for (((package, _), related), is_label) in packages.into_iter().zip(related).zip(is_label) {
        if is_label {
            intake.label(label_of(&package))?;
        }
        if !related.is_empty() {
            let split = debian.shares.split_of(&package.name);
            let labels = related.into_iter().map(|other| names[other].clone()).collect();
            // The lists have no name twice and none without letters, so the folder is place enough.
            intake.document(split, document_of(package, labels), &Place::file(lists.dir()))?;
        }
    }
    intake.finish(
        lists.dir(),
        "packages that depend on others in the lists; run `apt-get update`, or name the folder that holds all \
         of them",
    )
}

fn label_of(package: &Package) -> Label {
    let named = package.short != package.name;
    Label {
        id: package.name.clone(),
        name: package.short.clone(),
        description: package.long.clone(),
        aliases: if named { vec![package.name.clone()] } else { Vec::new() },
        ..Label::default()
    }
}

/// The names in a relation field: `a (>= 1) | b:any [amd64], c <!nocheck>` holds a, b and c.
fn names_in(relations: &str) -> impl Iterator<Item = &str> {
    relations
        .split([',', '|'])
        .map(|relation| relation.trim_start())
        .map(|relation| {
            relation.split(|c: char| c.is_whitespace() || "([<:".contains(c)).next().unwrap_or("")
        })
        .filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::DebianLabels;
    use super::*;
    use crate::data::import::testing::{complaint, folder, run};

    const PACKAGES: &str = "\
Package: game
Depends: game-data (>= 0.0.26), game-data (<= 0.0.26-3), libc6 (>= 2.34),
 fonts-a | fonts-b, virtual-fonts
Recommends: python3:any
Suggests: game
Enhances: libc6
Description: Strategy game
 Of ancient warfare.

Package: game-data
Description: Strategy game (data)
 Its data.

Package: libc6
Breaks: game
Description: C library

Package: fonts-b
Depends: virtual-fonts
Provides: virtual-fonts
Description: Letters

Package: python3
Suggests: libc6[amd64], game
";

    #[test]
    fn packages_that_exist_become_labels_and_virtual_ones_do_not() {
        let dir = folder(&[("x_Packages.zst", PACKAGES)]);
        let debian = Debian { labels: DebianLabels::Related, ..Debian::default() };
        let imported = run(&debian, &dir, "").unwrap();
        let game = ("Strategy game", "Of ancient warfare.", "game-data libc6 fonts-b python3".to_owned());
        let documents =
            [("game", game.0, game.1, game.2), ("python3", "-", "python3", "game libc6".to_owned())];
        assert_eq!(imported.all(), documents);

        let ids: Vec<&str> = imported.labels.iter().map(|label| label.id.as_str()).collect();
        assert_eq!(ids, ["game", "game-data", "libc6", "fonts-b", "python3"]);
        let expected = Label {
            description: Some("Its data.".into()),
            aliases: vec!["game-data".into()],
            ..Label::new("game-data", "Strategy game (data)")
        };
        assert_eq!(*imported.label("game-data"), expected);
        assert_eq!(*imported.label("python3"), Label::new("python3", "python3"));
    }

    #[test]
    fn packages_that_stand_alone_make_no_task() {
        let dir = folder(&[("x_Packages", "Package: a\nDepends: virtual\n")]);
        let debian = Debian { labels: DebianLabels::Related, ..Debian::default() };
        let complaint = complaint(&debian, &dir, "");
        assert!(complaint.contains("no document was found; it should hold packages that"), "{complaint}");
        assert!(complaint.contains("apt-get update"));
    }

    #[test]
    fn names_lose_versions_and_qualifiers() {
        let names: Vec<&str> = names_in("a (>= 1) | b:any [amd64],c<!nocheck>,, d(= 1),\ne | \n f").collect();
        assert_eq!(names, ["a", "b", "c", "d", "e", "f"]);
    }

    proptest! {
        #[test]
        fn names_hold_no_syntax(relations in "[a-z0-9+. :|,()<>=\\[\\]\\n]{0,80}") {
            prop_assert!(names_in(&relations).all(|name| !name.is_empty() && !name.contains([' ', ',', '|', '(', ':'])));
        }
    }
}
