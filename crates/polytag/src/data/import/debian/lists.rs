//! The lists that apt fetches: which packages there are and how they are described.
//!
//! A folder enters; packages leave one by one, each name once, with a one-line and, where the lists
//! have it, a long description. apt keeps the long ones apart, in translation files that a checksum
//! ties to the packages; those are read first and held: about 1 KiB a package.

use std::fs;
use std::path::{Path, PathBuf};

use rustc_hash::{FxHashMap, FxHashSet};

use super::control::{Field, Paragraph, Paragraphs, malformed, short_and_long};
use crate::data::error::{DataError, Place};
use crate::data::import::ImportContext;
use crate::progress::Event;
use crate::storage::StorageError;

/// What lists may be compressed with; the content decides, the ending only finds the file.
const ENDINGS: [&str; 3] = [".lz4", ".gz", ".zst"];

/// The fields that are read of each package.
const PACKAGE_FIELDS: &[&str] =
    &["Package", "Description", "Description-md5", "Tag", "Depends", "Recommends", "Suggests", "Enhances"];

const TRANSLATION_FIELDS: &[&str] = &["Description-md5", "Description-en", "Description-en_GB"];

/// A package as the lists describe it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Package {
    pub(super) name: String,
    /// What it is, in one line; its name where the lists do not say.
    pub(super) short: String,
    /// What it is, at length.
    pub(super) long: Option<String>,
}

/// A package's paragraph in its file, for the fields that the kinds of labels read.
pub(super) struct Entry<'a> {
    paragraph: &'a Paragraph,
    path: &'a Path,
}

impl<'a> Entry<'a> {
    pub(super) fn field(&self, name: &str) -> Option<&'a Field> {
        self.paragraph.field(name)
    }

    /// Where it begins.
    pub(super) fn place(&self) -> Place {
        Place::line(self.path, self.paragraph.line)
    }

    /// An error about a field.
    pub(super) fn malformed(&self, field: &Field, problem: String) -> DataError {
        malformed(self.path, field.line, problem)
    }
}

/// The lists of a folder, in the order in which they are asked.
#[derive(Debug)]
pub(super) struct Lists {
    dir: PathBuf,
    packages: Vec<PathBuf>,
    /// Whether there are translation files.
    translated: bool,
    /// The long descriptions, by the checksum that packages name them with.
    long: FxHashMap<u128, String>,
}

impl Lists {
    /// Finds the lists in `dir`, and reads the long descriptions.
    pub(super) fn open(dir: &Path, context: &ImportContext<'_>) -> Result<Lists, DataError> {
        let mut packages = Vec::new();
        let mut translations = Vec::new();
        for entry in fs::read_dir(dir).map_err(StorageError::io(dir, "read the package lists in"))? {
            let path = entry.map_err(StorageError::io(dir, "read"))?.path();
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
            let name = ENDINGS.iter().find_map(|ending| name.strip_suffix(ending)).unwrap_or(name);
            if name == "Packages" || name.ends_with("_Packages") {
                packages.push((precedence(name), path));
            } else if let Some((_, "en" | "en_GB")) = name.rsplit_once("Translation-") {
                // Plain English sorts before its British form, and so comes first.
                translations.push((name.len(), path));
            }
        }
        if packages.is_empty() {
            return Err(DataError::Malformed {
                place: Place::file(dir),
                problem: "holds no package list (*_Packages, plain, .lz4, .gz or .zst)".to_owned(),
                remedy: "run `apt-get update`, or name the folder that holds the lists".to_owned(),
            });
        }
        packages.sort();
        translations.sort();
        Ok(Lists {
            dir: dir.to_owned(),
            packages: packages.into_iter().map(|(_, path)| path).collect(),
            translated: !translations.is_empty(),
            long: long_descriptions(translations.iter().map(|(_, path)| path), context)?,
        })
    }

    /// The folder.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Hands each package to `take`, in the order of the files, and the first of each name only.
    pub(super) fn visit(
        &self,
        context: &ImportContext<'_>,
        mut take: impl FnMut(Package, Entry<'_>) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        let mut names = FxHashSet::default();
        let mut without_long = 0u64;
        for path in &self.packages {
            let mut paragraphs = Paragraphs::open(path, PACKAGE_FIELDS, context.max_line)?;
            while let Some(paragraph) = paragraphs.read()? {
                context.check_stop()?;
                let package = package_of(&paragraph, path, &self.long)?;
                if !names.insert(package.name.clone()) {
                    continue;
                }
                without_long += u64::from(package.long.is_none());
                take(package, Entry { paragraph: &paragraph, path })?;
            }
        }
        if !self.translated && without_long > 0 {
            self.warn_of_short_texts(without_long, names.len(), context);
        }
        Ok(())
    }

    fn warn_of_short_texts(&self, without_long: u64, packages: usize, context: &ImportContext<'_>) {
        let warning = format!(
            "{}: {without_long} of {packages} packages have only a one-line description, as there is no \
             *_i18n_Translation-en here; to fetch the long ones, put `Acquire::Languages \"en\";` into a file \
             in /etc/apt/apt.conf.d and run `apt-get update` (in containers \
             /etc/apt/apt.conf.d/docker-no-languages forbids them: remove it first)",
            self.dir.display()
        );
        context.warn(&warning);
    }
}

/// The long descriptions, by the checksum that packages name them with.
fn long_descriptions<'a>(
    translations: impl Iterator<Item = &'a PathBuf>,
    context: &ImportContext<'_>,
) -> Result<FxHashMap<u128, String>, DataError> {
    let mut long = FxHashMap::default();
    context.progress.report(Event::Started { stage: "reading descriptions", total: None });
    for path in translations {
        let mut paragraphs = Paragraphs::open(path, TRANSLATION_FIELDS, context.max_line)?;
        while let Some(paragraph) = paragraphs.read()? {
            context.check_stop()?;
            let Some(sum) = paragraph.value("Description-md5").and_then(checksum) else {
                return Err(malformed(path, paragraph.line, "no Description-md5 of 32 hexadecimal digits"));
            };
            let description =
                paragraph.value("Description-en").or_else(|| paragraph.value("Description-en_GB"));
            if let Some(text) = description.and_then(|text| short_and_long(text).1) {
                long.entry(sum).or_insert(text);
            }
        }
    }
    context.progress.report(Event::Finished);
    Ok(long)
}

/// Which list is asked first about a package that several have: the archive of a distribution, which
/// alone carries tags; then its security fixes, updates and backports; then everyone else.
fn precedence(name: &str) -> u8 {
    let addition = ["-security", "-updates", "-backports"].iter().any(|part| name.contains(part));
    let archive = name.split_once("_dists_").map_or("", |(archive, _)| archive);
    match archive.rsplit('_').next() {
        _ if addition => 1,
        Some("debian" | "ubuntu") => 0,
        _ => 2,
    }
}

fn package_of(
    paragraph: &Paragraph,
    path: &Path,
    long: &FxHashMap<u128, String>,
) -> Result<Package, DataError> {
    let name = paragraph.value("Package").unwrap_or_default();
    if name.is_empty() {
        return Err(malformed(path, paragraph.line, "the paragraph has no field Package, or an empty one"));
    }
    let (short, inline) = short_and_long(paragraph.value("Description").unwrap_or_default());
    let sum = paragraph.value("Description-md5").and_then(checksum);
    // A list that carries the whole description needs no translation.
    let long = inline.or_else(|| sum.and_then(|sum| long.get(&sum).cloned()));
    let short = if short.is_empty() { name } else { short };
    Ok(Package { name: name.to_owned(), short: short.to_owned(), long })
}

fn checksum(digits: &str) -> Option<u128> {
    (digits.len() == 32).then(|| u128::from_str_radix(digits, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::import::testing::{Heard, folder, source_of};

    fn read(files: &[(&str, &str)]) -> (Result<Vec<Package>, String>, Vec<String>) {
        let dir = folder(files);
        let heard = Heard::default();
        let mut packages = Vec::new();
        let result = Lists::open(&source_of(&dir), &heard.context()).and_then(|lists| {
            lists.visit(&heard.context(), |package, _| {
                packages.push(package);
                Ok(())
            })
        });
        (result.map(|()| packages).map_err(|error| error.to_string()), heard.warnings())
    }

    #[test]
    fn the_checksum_finds_the_long_description() {
        let (packages, warnings) = read(&[
            (
                "mirror.example_debian_dists_bookworm_main_binary-amd64_Packages.lz4",
                "Package: 0ad\nDescription: Strategy game\nDescription-md5: d943033bedada21853d2ae54a2578a7b\n\n\
                 Package: plain\nDescription: No more than this\n",
            ),
            (
                "mirror.example_debian_dists_bookworm_main_i18n_Translation-en.lz4",
                "Package: 0ad\nDescription-md5: d943033bedada21853d2ae54a2578a7b\n\
                 Description-en: Strategy game\n Of ancient\n .\n warfare.\n",
            ),
        ]);
        let packages = packages.unwrap();
        assert_eq!(packages[0].long.as_deref(), Some("Of ancient\n\nwarfare."));
        assert_eq!((packages[1].short.as_str(), &packages[1].long), ("No more than this", &None));
        assert_eq!(warnings, [""; 0]);
    }

    #[test]
    fn without_translations_there_is_one_warning_with_the_remedy() {
        let (packages, warnings) = read(&[(
            "x_debian_dists_sid_main_binary-amd64_Packages",
            "Package: a\nDescription: A\n\nPackage: b\nDescription: B\n All of it.\n\nPackage: c\n",
        )]);
        let packages = packages.unwrap();
        assert_eq!(packages[1].long.as_deref(), Some("All of it."));
        assert_eq!(packages[2].short, "c");
        assert_eq!(warnings.len(), 1);
        assert!(warnings[0].contains("2 of 3 packages") && warnings[0].contains("Acquire::Languages"));
    }

    #[test]
    fn the_archive_is_asked_before_its_fixes_and_before_others() {
        let (packages, _) = read(&[
            ("a.example_apt_dists_stable_main_binary-amd64_Packages", "Package: p\nDescription: other\n"),
            (
                "d_debian-security_dists_bookworm-security_main_binary-amd64_Packages",
                "Package: p\nDescription: fixed\n\nPackage: q\nDescription: fixed\n",
            ),
            (
                "d_debian_dists_bookworm_main_binary-amd64_Packages.gz",
                "Package: p\nDescription: first\n\nPackage: p\nDescription: again\n",
            ),
            (
                "z.example_apt_._Packages",
                "Package: q\nDescription: other\n\nPackage: r\nDescription: other\n",
            ),
        ]);
        let read: Vec<(String, String)> = packages.unwrap().into_iter().map(|p| (p.name, p.short)).collect();
        let expected = [("p", "first"), ("q", "fixed"), ("r", "other")];
        assert_eq!(read, expected.map(|(name, short)| (name.to_owned(), short.to_owned())));
    }

    #[test]
    fn what_is_wrong_is_said_with_file_line_and_remedy() {
        let (packages, _) = read(&[("a_Packages", "Package: p\n\nVersion: 1\nDescription: x\n")]);
        let error = packages.unwrap_err();
        assert!(error.contains("a_Packages, line 3: the paragraph has no field Package"), "{error}");
        assert!(error.contains("apt-get update"), "{error}");

        let translation = ("x_i18n_Translation-en", "Package: p\nDescription-md5: 123\n");
        let (packages, _) = read(&[("a_Packages", "Package: p\n"), translation]);
        assert!(packages.unwrap_err().contains("x_i18n_Translation-en, line 1: no Description-md5"));

        let (packages, _) = read(&[("InRelease", "Origin: Debian\n")]);
        assert!(packages.unwrap_err().contains("holds no package list"));
    }
}
