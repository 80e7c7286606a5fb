//! A program's own folder, which no other user may have prepared.

use std::{fs, io, path::Path};

/// Makes `folder` this user's own and private, before anything in it is read; creates a missing folder.
///
/// Another user can leave a folder where a program starts: secrets in it are known, and a write follows the
/// links in it to this user's other files. Therefore the folder and everything in it must belong to this
/// user, and nothing in it may be a link. The path itself may be a link of this user.
///
/// # Errors
/// If something belongs to another user or is a link; the error names it.
#[cfg(unix)]
pub fn claim_folder(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};

    let refused = |path: &Path, problem: &str| {
        let text = format!(
            "{} {problem}, so another user may have planted it; remove it, take ownership (chown -R) if \
             you trust its content, or give another directory",
            path.display()
        );
        Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
    };
    let given = fs::symlink_metadata(folder).ok();
    match given.filter(fs::Metadata::is_symlink) {
        Some(link) if is_foreign(&link) => return refused(folder, "belongs to another user"),
        // Fails if the link is dangling.
        Some(_) => {
            fs::metadata(folder)?;
        }
        None => fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?,
    }
    let metadata = fs::metadata(folder)?;
    if is_foreign(&metadata) {
        return refused(folder, "belongs to another user");
    }
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o700))?;
        tracing::warn!(
            "other users had access to {} (mode {mode:03o}): it is now private (700)",
            folder.display()
        );
    }
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let metadata = match fs::symlink_metadata(&path) {
                // Another process of this user removed it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                metadata => metadata?,
            };
            if metadata.is_symlink() {
                return refused(&path, "is a link");
            }
            if is_foreign(&metadata) {
                return refused(&path, "belongs to another user");
            }
            if metadata.is_dir() {
                folders.push(path);
            }
        }
    }
    Ok(())
}

/// Returns whether something belongs to another user.
#[cfg(unix)]
pub(super) fn is_foreign(metadata: &fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    metadata.uid() != rustix::process::geteuid().as_raw()
}

/// Creates a missing folder: on other systems, folders of users are private.
#[cfg(not(unix))]
pub fn claim_folder(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

    use super::*;

    #[test]
    fn a_folder_becomes_private_and_nothing_in_it_may_be_a_link_or_belong_to_others() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("a/own");
        let mode = || fs::metadata(&folder).unwrap().permissions().mode() & 0o777;
        claim_folder(&folder).unwrap();
        assert_eq!(mode(), 0o700);
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o775)).unwrap();
        fs::create_dir(folder.join("runs")).unwrap();
        fs::write(folder.join("runs/file"), "").unwrap();
        claim_folder(&folder).unwrap();
        assert_eq!(mode(), 0o700);
        // The path may be a link of this user.
        let link = home.path().join("link");
        symlink(&folder, &link).unwrap();
        claim_folder(&link).unwrap();
        let victim = home.path().join("victim");
        fs::write(&victim, "content").unwrap();
        for name in ["lock", "runs/journal.jsonl"] {
            symlink(&victim, folder.join(name)).unwrap();
            let error = claim_folder(&folder).unwrap_err().to_string();
            assert!(error.contains(&format!("{name} is a link")), "{error}");
            fs::remove_file(folder.join(name)).unwrap();
        }
        // Only root can change the owner of a file.
        if rustix::process::geteuid().is_root() {
            for name in ["runs/file", "runs", ""] {
                let path = folder.join(name);
                chown(&path, Some(1), None).unwrap();
                let error = claim_folder(&folder).unwrap_err().to_string();
                assert!(error.contains("belongs to another user"), "{name}: {error}");
                chown(&path, Some(0), None).unwrap();
            }
            std::os::unix::fs::lchown(&link, Some(1), None).unwrap();
            assert!(claim_folder(&link).is_err());
        }
        claim_folder(&folder).unwrap();
    }
}
