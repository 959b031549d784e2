//! Names that the operator generates: short enough for Kubernetes, unique, and the same each time, so that a second
//! attempt to create an object finds the first one.

/// Maximum length of a Job's name, which is a label value of its pods.
const MAX_JOB_NAME: usize = 63;
/// Maximum length of an object's name (DNS subdomain).
pub const MAX_NAME: usize = 253;
/// Maximum length of a workload's name: the names of its revisions are label values of at most 63 characters.
pub const MAX_WORKLOAD_NAME: usize = 52;

/// Kubernetes' safe alphabet: without vowels and the digits 0, 1 and 3, so that no words are formed.
const SAFE: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// FNV-1a, 32 bits: Kubernetes' hash for the names of revisions.
pub fn fnv32(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

/// A hash in the safe alphabet, as in the name of a revision: its decimal digits, each replaced
/// by a character of that alphabet (Kubernetes' SafeEncodeString).
pub fn safe_hash(bytes: &[u8]) -> String {
    fnv32(bytes)
        .to_string()
        .bytes()
        .map(|digit| SAFE[usize::from(digit) % SAFE.len()] as char)
        .collect()
}

/// Five characters of the safe alphabet, as at the end of a pod's name.
pub fn instance_id(seed: &[u8]) -> String {
    let mut hash = seed.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    // The low bits of FNV are poorly mixed, so the high half is folded in.
    hash ^= hash >> 32;
    (0..5)
        .map(|_| {
            let letter = SAFE[(hash % SAFE.len() as u64) as usize];
            hash /= SAFE.len() as u64;
            letter as char
        })
        .collect()
}

/// Truncates a name to `max` bytes. A truncated name ends in a hash of the full name.
pub(super) fn shorten(name: String, max: usize) -> String {
    if name.len() <= max {
        return name;
    }
    let hash = safe_hash(name.as_bytes());
    let mut end = max - hash.len() - 1;
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}-{hash}", name[..end].trim_end_matches(['-', '.']))
}

/// Name of the Job of a HookRun's measurement: the same for each attempt, and unique for each run, metric
/// and measurement.
pub fn job_name(run: &str, run_uid: &str, metric: &str, number: i32) -> String {
    let whole = format!("{run_uid}/{metric}/{number}");
    let whole = whole.as_bytes();
    let end = format!("{number}-{}{}", safe_hash(whole), instance_id(whole));
    let run: String = run.replace('.', "-").chars().take(MAX_JOB_NAME - end.len() - 1).collect();
    format!("{}-{end}", run.trim_end_matches('-'))
}

/// Name of the HookRun of one attempt at a lifecycle hook of a Cluster.
pub fn lifecycle_run_name(
    prefix: &str,
    cluster: &str,
    node: &str,
    hash: &str,
    attempt: u32,
) -> String {
    shorten(format!("{prefix}-{cluster}-{node}-{hash}-{attempt}"), MAX_NAME)
}

/// The name of the PodDisruptionBudget that guards the pods of a workload. The uid is part of it, because the
/// budget of an earlier workload with the same name may still guard pods.
pub fn budget_name(workload: &str, uid: &str) -> String {
    format!("{workload}-guarded-{}", safe_hash(uid.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_measurement_has_its_own_job_with_a_valid_name() {
        let long = "pre-delete-hook-test-gamedeployment-67864c6f65-s9rbp-backup.before.it.goes";
        let names: std::collections::BTreeSet<String> = [
            job_name(long, "uid-1", "backup", 1),
            job_name(long, "uid-1", "backup", 2),
            job_name(long, "uid-1", "other", 1),
            job_name(long, "uid-2", "backup", 1),
            job_name("a", "uid-1", "Backup of it all", i32::MAX),
        ]
        .into();
        assert_eq!(names.len(), 5);
        assert_eq!(job_name(long, "uid-1", "backup", 1), job_name(long, "uid-1", "backup", 1));
        for name in names {
            let is_valid = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            assert!(name.len() <= 63 && name.chars().all(is_valid), "{name}");
        }
    }
}
