//! Releases the memory of a process that is idle most of the time.
//!
//! Most of an idle daemon's memory is its own program text and freed heap: start-up and the last update touched many
//! pages that are not needed to wait. The kernel reclaims them only under memory pressure, on every node at once, and
//! the allocator never does; this module does it in advance.

use std::fs;
use std::io;
use std::path::Path;

use rustix::mm::{Advice, madvise};

/// Releases all memory that an idle process does not need.
pub fn release_memory() -> io::Result<()> {
    release_heap();
    release_program_pages()
}

/// Returns freed heap memory, which the allocator retains for reuse, to the kernel.
fn release_heap() {
    #[cfg(target_env = "gnu")]
    {
        #[expect(unsafe_code, reason = "malloc_trim is only available through the C library")]
        // SAFETY: `malloc_trim` takes the allocator's own locks and touches only free memory.
        unsafe {
            libc::malloc_trim(0);
        }
    }
}

/// Drops the pages of the program text. They are read from their files again on demand.
fn release_program_pages() -> io::Result<()> {
    let program = fs::read_link("/proc/self/exe")?;
    let maps = fs::read_to_string("/proc/self/maps")?;
    for range in unchanged_mappings(&maps, &program) {
        let start = std::ptr::with_exposed_provenance_mut(range.start);
        #[expect(unsafe_code, reason = "madvise has no safe interface")]
        // SAFETY: these pages were never writable, so their file holds the same bytes; the kernel rejects writes to a
        // running program, and libraries are replaced, not modified.
        unsafe {
            madvise(start, range.len(), Advice::LinuxDontNeed)?;
        }
    }
    Ok(())
}

/// Returns the unmodified file mappings: code, including that of libraries, and the constants at the program's
/// beginning. Other read-only mappings were written to by the dynamic loader.
fn unchanged_mappings(maps: &str, program: &Path) -> Vec<std::ops::Range<usize>> {
    let unchanged = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let (range, rights, offset) = (fields.next()?, fields.next()?, fields.next()?);
        let path = fields.nth(2)?;
        let path = Path::new(path);
        let is_code = rights == "r-xp" && path.is_absolute();
        let is_beginning = rights == "r--p" && path == program && offset.bytes().all(|digit| digit == b'0');
        if !(is_code || is_beginning) {
            return None;
        }
        let (start, end) = range.split_once('-')?;
        let address = |text| usize::from_str_radix(text, 16).ok();
        Some(address(start)?..address(end)?)
    };
    maps.lines().filter_map(unchanged).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_never_written_is_given_back() {
        let maps = "\
1000-3000 r--p 00000000 fe:00 42 /usr/bin/mco
3000-7000 r-xp 00002000 fe:00 42 /usr/bin/mco
7000-8000 r--p 00006000 fe:00 42 /usr/bin/mco
8000-9000 rw-p 00007000 fe:00 42 /usr/bin/mco
a000-b000 rw-p 00000000 00:00 0 [heap]
b000-c000 r--p 00000000 fe:00 43 /usr/lib/libc.so.6
c000-d000 r-xp 00001000 fe:00 43 /usr/lib/libc.so.6
e000-f000 r-xp 00000000 00:00 0 [vdso]
";
        assert_eq!(
            unchanged_mappings(maps, Path::new("/usr/bin/mco")),
            [0x1000..0x3000, 0x3000..0x7000, 0xc000..0xd000]
        );
    }

    #[test]
    fn the_program_goes_on() {
        for _ in 0..3 {
            release_memory().unwrap();
            assert_eq!(format!("{:?}", std::time::Duration::from_millis(1500)), "1.5s");
        }
    }
}
