//! How much memory this machine has, and how much of it is free: where Linux says so, on the whole machine and in the
//! groups of processes that this one is kept in. Swap is not counted.

use std::fs;
use std::path::Path;

/// Where groups of processes say how much they may have, and have.
struct Accounts {
    folder: &'static str,
    most: &'static str,
    taken: &'static str,
    /// What of that is given back when memory is short: pages of files, and what the system keeps of them.
    spare: &'static [&'static str],
}

/// As groups are now.
const NOW: Accounts = Accounts {
    folder: "",
    most: "memory.max",
    taken: "memory.current",
    spare: &["active_file ", "inactive_file ", "slab_reclaimable "],
};

/// As groups were.
const BEFORE: Accounts = Accounts {
    folder: "memory",
    most: "memory.limit_in_bytes",
    taken: "memory.usage_in_bytes",
    spare: &["total_active_file ", "total_inactive_file "],
};

/// Bytes in all that this process may come to; none where nobody says.
pub fn all() -> Option<u64> {
    let machine = of_machine(&fs::read_to_string("/proc/meminfo").ok()?, "MemTotal:")?;
    Some(groups().into_iter().map(|(most, _)| most).fold(machine, u64::min))
}

/// Bytes that are free, or would be if it came to it; none where nobody says.
pub fn free() -> Option<u64> {
    let machine = of_machine(&fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable:")?;
    Some(groups().into_iter().map(|(most, taken)| most.saturating_sub(taken)).fold(machine, u64::min))
}

/// The limits of the groups that this process is in, and what each has taken of its own.
fn groups() -> Vec<(u64, u64)> {
    let told = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    groups_of(Path::new("/sys/fs/cgroup"), &told)
}

/// The same, of the groups below a folder that a process says it is in, and of those around them.
fn groups_of(root: &Path, told: &str) -> Vec<(u64, u64)> {
    let mut groups = Vec::new();
    for line in told.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(of), Some(path)) = (parts.next(), parts.next()) else { continue };
        let accounts = match of {
            "" => NOW,
            of if of.split(',').any(|of| of == "memory") => BEFORE,
            _ => continue,
        };
        let base = root.join(accounts.folder);
        for path in Path::new(path.trim_start_matches('/')).ancestors() {
            groups.extend(accounts.read(&base.join(path)));
        }
    }
    groups
}

impl Accounts {
    /// The limit of the group in a folder, and what it has taken of it; none without a limit.
    fn read(&self, folder: &Path) -> Option<(u64, u64)> {
        let number = |name| fs::read_to_string(folder.join(name)).ok()?.trim().parse::<u64>().ok();
        let most = number(self.most)?;
        let stat = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
        let spare = stat.lines().filter_map(|line| {
            let bytes = self.spare.iter().find_map(|name| line.strip_prefix(name))?;
            bytes.trim().parse::<u64>().ok()
        });
        Some((most, number(self.taken)?.saturating_sub(spare.sum())))
    }
}

fn of_machine(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
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
    fn groups_and_those_around_them_have_limits_or_none() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let of = |told: &str| groups_of(folder.path(), told);
        assert_eq!(of("0::/a/b\n4:memory:/job\n"), []);
        // Groups as they were: without a limit they name a number beyond any memory.
        write("memory/memory.limit_in_bytes", "9223372036854771712\n");
        write("memory/memory.usage_in_bytes", "1000\n");
        write("memory/job/memory.limit_in_bytes", "5000\n");
        write("memory/job/memory.usage_in_bytes", "900\n");
        write("memory/job/memory.stat", "active_file 7\ntotal_active_file 30\ntotal_inactive_file 20\n");
        assert_eq!(of("4:memory:/job\n5:cpu:/other\n"), [(5000, 850), (9_223_372_036_854_771_712, 1000)]);
        write("a/memory.max", "4096\n");
        write("a/memory.current", "700\n");
        write("a/memory.stat", "anon 500\nactive_file 30\ninactive_file 20\nslab_reclaimable 5\nfile 9\n");
        write("a/b/memory.max", "max\n");
        write("a/b/memory.current", "600\n");
        assert_eq!(of("0::/a/b\n"), [(4096, 645)], "its own group has no limit, the one around it has");
        assert_eq!(of("0::/elsewhere\nnonsense\n"), []);
    }
}
