//! How much memory this machine has, and how much of it is free: where Linux says so, on the whole machine and in the group
//! of processes that this one is kept in.

use std::fs;
use std::path::Path;

/// Where a group of processes says how much it may have, and has: as groups are now, and as they were.
const GROUPS: [(&str, &str, &str); 2] = [
    ("memory.max", "memory.current", "memory.stat"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat"),
];

/// Bytes in all that this process may come to; none where nobody says.
pub fn all() -> Option<u64> {
    let machine = of_machine(&fs::read_to_string("/proc/meminfo").ok()?, "MemTotal:")?;
    Some(group(Path::new("/sys/fs/cgroup")).map_or(machine, |(most, _)| machine.min(most)))
}

/// Bytes that are free, or would be if it came to it; none where nobody says.
pub fn free() -> Option<u64> {
    let machine = of_machine(&fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable:")?;
    let left = |(most, taken): (u64, u64)| machine.min(most.saturating_sub(taken));
    Some(group(Path::new("/sys/fs/cgroup")).map_or(machine, left))
}

fn of_machine(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The limit of the group in a folder, and what it has taken of it; none without a limit.
fn group(folder: &Path) -> Option<(u64, u64)> {
    let number = |name| fs::read_to_string(folder.join(name)).ok()?.trim().parse::<u64>().ok();
    GROUPS.into_iter().find_map(|(most, taken, stat)| {
        // What is taken counts the pages of files, which are given back when memory is short.
        let pages = of_files(&fs::read_to_string(folder.join(stat)).unwrap_or_default());
        Some((number(most)?, number(taken)?.saturating_sub(pages)))
    })
}

/// The bytes of pages of files, as a group of processes has them.
fn of_files(stat: &str) -> u64 {
    let pages = stat.lines().filter_map(|line| {
        let line = line.strip_prefix("active_file ").or_else(|| line.strip_prefix("inactive_file "))?;
        line.trim().parse::<u64>().ok()
    });
    pages.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_says_what_it_has() {
        let told = "MemTotal:       24576 kB\nMemAvailable:    2048 kB\n";
        assert_eq!(of_machine(told, "MemAvailable:"), Some(2 << 20));
        assert_eq!(of_machine(told, "MemTotal:"), Some(24 << 20));
        assert_eq!(of_machine("MemTotal: 1 kB\n", "MemAvailable:"), None);
        assert_eq!(of_machine("MemAvailable: much\n", "MemAvailable:"), None);
        if let (Some(all), Some(free)) = (all(), free()) {
            assert!(free > 0 && free <= all, "{free} of {all}");
        }
    }

    #[test]
    fn a_group_has_a_limit_or_none() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        assert_eq!(group(folder.path()), None);
        // Groups as they were: without a limit they name a number beyond any memory.
        write("memory/memory.limit_in_bytes", "9223372036854771712\n");
        write("memory/memory.usage_in_bytes", "1000\n");
        assert_eq!(group(folder.path()), Some((9_223_372_036_854_771_712, 1000)));
        write("memory.max", "max\n");
        write("memory.current", "700\n");
        assert_eq!(group(folder.path()).unwrap().1, 1000, "no limit as groups are now");
        write("memory.max", "4096\n");
        write("memory.stat", "anon 500\nactive_file 30\ninactive_file 20\nfile 9\n");
        assert_eq!(group(folder.path()), Some((4096, 650)));
    }
}
