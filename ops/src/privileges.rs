//! Privilege drop from root to an account without privileges, after binding what only root may
//! bind.

use anyhow::Context;
use caps::{CapSet, Capability, CapsHashSet};
use millrace_config::{ConfigError, Runtime, Source};
use nix::unistd::{Gid, Group, Uid, User, geteuid, setgroups, setresgid, setresuid};

/// The account that a process runs as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    user: String,
    uid: Uid,
    gid: Gid,
}

impl Account {
    /// The account that `runtime.user` and `runtime.group` name; `None` when they name none.
    ///
    /// # Errors
    /// There is no such user or group.
    pub fn find(runtime: &Runtime, source: &Source) -> Result<Option<Self>, ConfigError> {
        let Some(name) = &runtime.user else { return Ok(None) };
        let missing = |key: &str, problem: String| source.error(&format!("runtime.{key}"), problem);
        let create = format!(
            "there is no user {name:?} on this machine; `useradd --system {name}` makes one"
        );
        let user = User::from_name(name)
            .map_err(|error| missing("user", format!("can't look up {name:?}: {error}")))?
            .ok_or_else(|| missing("user", create))?;
        let gid = match &runtime.group {
            None => user.gid,
            Some(group) => {
                let problem = || missing("group", format!("there is no group {group:?}"));
                Group::from_name(group).ok().flatten().ok_or_else(problem)?.gid
            }
        };
        Ok(Some(Self { user: name.clone(), uid: user.uid, gid }))
    }

    /// Its number, for messages.
    pub fn uid(&self) -> u32 {
        self.uid.as_raw()
    }
}

/// Becomes `account`, with no capability but `keep`, for good. To be called before threads are
/// started that need one of them: a thread has its capabilities from the one that starts it.
///
/// # Errors
/// The process may not, because it is neither root nor that account already.
pub fn drop_to(account: Option<&Account>, keep: &[Capability]) -> anyhow::Result<()> {
    let Some(account) = account else {
        if geteuid().is_root() {
            tracing::warn!("running as root; set runtime.user to an unprivileged account");
        }
        return Ok(());
    };
    let permitted = caps::read(None, CapSet::Permitted)?;
    let keep: CapsHashSet =
        permitted.intersection(&keep.iter().copied().collect()).copied().collect();
    if geteuid() != account.uid {
        become_account(account).with_context(|| {
            format!("can't become runtime.user {:?}; start it as root", account.user)
        })?;
    }
    caps::clear(None, CapSet::Ambient)?;
    caps::clear(None, CapSet::Inheritable)?;
    caps::set(None, CapSet::Effective, &keep)?;
    caps::set(None, CapSet::Permitted, &keep)?;
    nix::sys::prctl::set_no_new_privs()?;
    let mut kept: Vec<_> = keep.iter().map(ToString::to_string).collect();
    kept.sort_unstable();
    tracing::info!(user = account.user, capabilities = kept.join(" "), "privileges dropped");
    Ok(())
}

fn become_account(account: &Account) -> anyhow::Result<()> {
    // What an executed program could get back, if one were ever executed. Without CAP_SETPCAP it
    // stays, and no_new_privs has to do.
    if caps::has_cap(None, CapSet::Effective, Capability::CAP_SETPCAP)? {
        for capability in caps::runtime::thread_all_supported() {
            caps::drop(None, CapSet::Bounding, capability)?;
        }
    }
    // The change of user would take all capabilities at once.
    caps::securebits::set_keepcaps(true)?;
    setgroups(&[account.gid])?;
    setresgid(account.gid, account.gid, account.gid)?;
    setresuid(account.uid, account.uid, account.uid)?;
    caps::securebits::set_keepcaps(false)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn runtime(user: Option<&str>, group: Option<&str>) -> Runtime {
        Runtime {
            workers: None,
            pin_workers: false,
            drain_timeout: std::time::Duration::ZERO,
            user: user.map(str::to_owned),
            group: group.map(str::to_owned),
        }
    }

    #[test]
    fn accounts_are_found_by_name_or_reported_with_their_key() {
        let source = Source::new("[runtime]\nuser = \"x\"\ngroup = \"y\"\n", Path::new("a.toml"));
        let find = |user, group| Account::find(&runtime(user, group), &source);
        assert_eq!(find(None, None).unwrap(), None);
        let nobody = find(Some("nobody"), None).unwrap().unwrap();
        assert!(nobody.uid() != 0);
        let root = find(Some("nobody"), Some("root")).unwrap().unwrap();
        assert_eq!(root.gid, Gid::from_raw(0));
        let error = find(Some("no such user"), None).unwrap_err().to_string();
        assert!(error.starts_with("a.toml:2:8: runtime.user: there is no user"), "{error}");
        let error = find(Some("nobody"), Some("no such group")).unwrap_err().to_string();
        assert!(error.starts_with("a.toml:3:9: runtime.group: there is no group"), "{error}");
    }
}
