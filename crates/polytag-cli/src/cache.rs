//! Where polytag keeps what it fetched, decided in one place.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use polytag::encoder::EncoderCache;

use crate::failure::user_error;

/// The option of every command that works with encoders.
#[derive(Debug, Args)]
pub(crate) struct CacheArguments {
    /// Folder that keeps what was fetched [default: POLYTAG_CACHE, else polytag in the user's cache]
    #[arg(long, value_name = "FOLDER", global = true)]
    cache: Option<PathBuf>,
}

impl CacheArguments {
    /// The folder of the cache, if the user or the environment has one.
    pub(crate) fn root(&self) -> Option<PathBuf> {
        self.cache.clone().or_else(|| cache_folder(|name| std::env::var_os(name)))
    }

    /// The encoders in the cache.
    pub(crate) fn encoders(&self) -> anyhow::Result<EncoderCache> {
        let folder = self.root().ok_or_else(|| {
            user_error(
                "there is no home folder to keep encoders in; name one with --cache or in POLYTAG_CACHE",
            )
        })?;
        Ok(EncoderCache::new(folder.join("encoders")))
    }
}

/// The cache that the environment asks for, as other programs understand it.
fn cache_folder(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let named = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    // The XDG rules want a path that is not absolute ignored.
    let users = named("XDG_CACHE_HOME").filter(|path| path.is_absolute());
    let users =
        users.or_else(|| named("LOCALAPPDATA")).or_else(|| named("HOME").map(|home| home.join(".cache")));
    named("POLYTAG_CACHE").or_else(|| users.map(|users| users.join("polytag")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_counts() {
        let home = ("HOME", "/home/me");
        for (variables, folder) in [
            (vec![home], Some("/home/me/.cache/polytag")),
            (vec![home, ("XDG_CACHE_HOME", "/big")], Some("/big/polytag")),
            (vec![home, ("XDG_CACHE_HOME", "relative")], Some("/home/me/.cache/polytag")),
            (vec![home, ("XDG_CACHE_HOME", "/big"), ("POLYTAG_CACHE", "/mine")], Some("/mine")),
            (vec![home, ("POLYTAG_CACHE", "")], Some("/home/me/.cache/polytag")),
            (vec![], None),
        ] {
            let value = |name: &str| {
                variables
                    .iter()
                    .find(|(variable, _)| *variable == name)
                    .map(|(_, value)| OsString::from(value))
            };
            assert_eq!(cache_folder(value), folder.map(PathBuf::from), "{variables:?}");
        }
    }
}
