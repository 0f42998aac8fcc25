//! Paths that name a descriptor which this program has open: `/dev/stdout`, `/dev/fd/3`, `/proc/self/fd/1`, and links to them.
//!
//! Behind such a path there may be a file that others write to as well: a log that standard output was sent to. Opened by its
//! path it would be written from its beginning; renamed over, it would be gone. What goes there goes through the descriptor, to
//! where that stands.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::path::Path;

/// The descriptor that `path` names, for writing, with its position shared; `None` where it names none.
///
/// # Errors
/// If there is one and it cannot be written to.
#[cfg(unix)]
pub(super) fn behind(path: &Path) -> io::Result<Option<File>> {
    named_by(path).map(duplicate).transpose()
}

/// There are no such paths here.
#[cfg(not(unix))]
pub(super) fn behind(_path: &Path) -> io::Result<Option<File>> {
    Ok(None)
}

/// The open descriptor that `path` names. Links are followed one by one, as the last of them leads away from the descriptor.
#[cfg(unix)]
fn named_by(path: &Path) -> Option<std::os::fd::RawFd> {
    /// As many as Linux follows.
    const MOST_LINKS: usize = 40;
    let mut path = std::path::absolute(path).ok()?;
    for _ in 0..MOST_LINKS {
        let folder = path.parent()?.canonicalize().ok()?;
        let place = folder.join(path.file_name()?);
        if holds_descriptors(&folder) {
            // Its entry is there as long as it is open.
            let is_open = place.symlink_metadata().is_ok();
            let number: u32 = place.file_name()?.to_str()?.parse().ok()?;
            return number.try_into().ok().filter(|_| is_open);
        }
        path = folder.join(place.read_link().ok()?);
    }
    None
}

/// Whether the entries of a folder are the descriptors of this program, be it by way of one of its threads.
#[cfg(unix)]
fn holds_descriptors(folder: &Path) -> bool {
    let own = Path::new("/proc/self").canonicalize();
    folder == Path::new("/dev/fd") || own.is_ok_and(|own| folder.starts_with(own) && folder.ends_with("fd"))
}

#[cfg(unix)]
fn duplicate(descriptor: std::os::fd::RawFd) -> io::Result<File> {
    use rustix::fs::{OFlags, fcntl_getfl};
    // SAFETY: it is a number from zero on, and was open a moment ago, as its entry was there. It is borrowed for this one call
    // only, which fails if it was closed meanwhile.
    let borrowed = unsafe { std::os::fd::BorrowedFd::borrow_raw(descriptor) };
    let file = File::from(borrowed.try_clone_to_owned()?);
    match fcntl_getfl(&file)? & OFlags::RWMODE {
        OFlags::RDONLY => Err(io::ErrorKind::PermissionDenied.into()),
        _ => Ok(file),
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::os::fd::AsRawFd as _;
    use std::os::unix::fs::symlink;

    #[test]
    fn descriptors_are_known_by_each_of_their_names() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let file = File::create(&path).unwrap();
        let number = file.as_raw_fd();
        let name = format!("/proc/self/fd/{number}");
        let (link, second) = (dir.path().join("link"), dir.path().join("second"));
        symlink(&name, &link).unwrap();
        symlink("link", &second).unwrap();
        let own = format!("/proc/{}/fd/{number}", std::process::id());
        let of_thread = format!("/proc/thread-self/fd/{number}");
        let roundabout = format!("/proc/self/../self/fd/./{number}");
        for path in [name, own, of_thread, roundabout].iter().map(Path::new).chain([&*link, &*second]) {
            assert_eq!(named_by(path), Some(number), "{}", path.display());
        }
        let circle = dir.path().join("circle");
        symlink(&circle, &circle).unwrap();
        let other_names = ["/dev/null", "/proc/self/fd", "/proc/self/fd/+1", "/proc/self/fd/-1", "/"];
        let closed = format!("/proc/self/fd/{}", i32::MAX);
        let others = other_names.into_iter().chain([&*closed]).map(Path::new);
        for path in others.chain([&*path, dir.path(), &*circle, Path::new("")]) {
            assert_eq!(named_by(path), None, "{}", path.display());
        }
    }

    #[test]
    fn what_is_written_goes_where_the_descriptor_stands() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let mut file = File::create(&path).unwrap();
        let name = format!("/proc/self/fd/{}", file.as_raw_fd());
        file.write_all(b"one ").unwrap();
        behind(Path::new(&name)).unwrap().unwrap().write_all(b"two ").unwrap();
        file.write_all(b"three").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"one two three");
        assert!(behind(&path).unwrap().is_none());

        let read_only = File::open(&path).unwrap();
        let name = format!("/proc/self/fd/{}", read_only.as_raw_fd());
        let error = behind(Path::new(&name)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    }
}
