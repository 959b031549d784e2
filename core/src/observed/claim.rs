//! The parts of a volume claim that the planner reads.

/// The slim form of a volume claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Uid.
    pub uid: String,
    /// resourceVersion, which orders all writes.
    pub resource_version: u64,
    /// Whether it is Terminating.
    pub terminating: bool,
    /// Its owners: it is deleted with the last of them.
    pub owners: Vec<ClaimOwner>,
}

/// An owner of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimOwner {
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
    /// Uid.
    pub uid: String,
    /// Whether it controls the claim.
    pub controller: bool,
}

impl Claim {
    /// Whether the object with this uid owns the claim.
    pub fn is_owned_by(&self, uid: &str) -> bool {
        self.owners.iter().any(|owner| owner.uid == uid)
    }

    /// Uid of the object that controls the claim, if any.
    pub fn controller(&self) -> Option<&str> {
        let mut owners = self.owners.iter();
        let owner = owners.find(|owner| owner.controller)?;
        Some(&owner.uid)
    }
}
