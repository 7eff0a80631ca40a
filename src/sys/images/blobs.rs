//! The small files of a saved image, in a folder or in a tar file. Nothing is unpacked, and no layer is read.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags};

/// No index, manifest or configuration comes near this size, in bytes.
const SIZE_LIMIT: u64 = 16 << 20;

/// All headers of a tar file together: a docker save archive has a few for each layer.
const HEADERS_LIMIT: u64 = 64 << 20;

/// How compressed files begin, and what makes a tar file of each.
const COMPRESSED: [(&[u8], &str); 4] = [
    (&[0x1f, 0x8b], "gzip -dc"),
    (&[0x28, 0xb5, 0x2f, 0xfd], "zstd -dc"),
    (&[0xfd, b'7', b'z', b'X', b'Z', 0], "xz -dc"),
    (b"BZh", "bzip2 -dc"),
];

/// Whether a file that begins so is compressed.
pub fn is_compressed(start: &[u8]) -> bool {
    COMPRESSED.iter().any(|(magic, _)| start.starts_with(magic))
}

/// Where the files are.
pub(super) enum Blobs {
    Folder(PathBuf),
    Tar(File, Entries),
    /// Somebody is asked, by digest.
    Asked(Box<Asked>),
}

/// Position and size of each regular file by its name; why another cannot be read, since readers differ in what it is.
pub(super) type Entries = BTreeMap<String, Result<(u64, u64), &'static str>>;

/// What has a digest of these 64 hexadecimal digits.
pub(super) type Asked = dyn Fn(&str) -> Result<Vec<u8>, String>;

/// Why a file cannot be looked into, and what to do about it.
pub(super) struct Unreadable {
    pub(super) reason: String,
    pub(super) hint: String,
}

impl Unreadable {
    pub(super) fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), hint: String::new() }
    }
}

impl From<io::Error> for Unreadable {
    fn from(error: io::Error) -> Self {
        Self::new(error.to_string())
    }
}

impl Blobs {
    pub(super) fn open(path: &Path) -> Result<Self, Unreadable> {
        if path.is_dir() {
            return Ok(Self::Folder(path.to_owned()));
        }
        let mut file = regular(path, OFlags::empty())?.ok_or_else(|| Unreadable::new("it is not there"))?;
        let mut start = [0; 6];
        let length = file.read_at(&mut start, 0)?;
        let start = start.get(..length).unwrap_or_default();
        if let Some((_, program)) = COMPRESSED.iter().find(|(magic, _)| start.starts_with(magic)) {
            let hint = format!("{program} {path} > image.tar, and ask about that", path = path.display());
            return Err(Unreadable { reason: "it is compressed".to_owned(), hint });
        }
        let entries = entries(&mut file).map_err(|error| Unreadable::new(format!("it is no tar file: {error}")))?;
        Ok(Self::Tar(file, entries))
    }

    /// A file's content; `None` where it is not there.
    pub(super) fn read(&self, name: &str) -> Result<Option<Vec<u8>>, String> {
        match self {
            Self::Folder(folder) => {
                // A name out of somebody's manifest must not lead out of the folder.
                if !Path::new(name).components().all(|part| matches!(part, Component::Normal(_))) {
                    return Err(format!("{name:?} is no name of a file in it"));
                }
                let failed = |error: io::Error| format!("{name}: {error}");
                let Some(file) = regular(&folder.join(name), OFlags::NOFOLLOW).map_err(failed)? else {
                    return Ok(None);
                };
                let mut content = Vec::new();
                file.take(SIZE_LIMIT + 1).read_to_end(&mut content).map_err(failed)?;
                within_limit(name, content.len() as u64)?;
                Ok(Some(content))
            }
            Self::Asked(ask) => {
                let Some(hex) = name.strip_prefix("blobs/sha256/") else { return Ok(None) };
                ask(hex).map(Some)
            }
            Self::Tar(file, entries) => {
                // A link in place of a folder would lead elsewhere.
                let folders = name.match_indices('/').map(|(at, _)| &name[..at]);
                if let Some(folder) = folders.into_iter().find(|folder| entries.contains_key(*folder)) {
                    return Err(format!("{folder:?} is no folder in it"));
                }
                let Some(found) = entries.get(name) else { return Ok(None) };
                let (position, size) = found.map_err(|why| format!("{name:?} {why}"))?;
                within_limit(name, size)?;
                let mut content = vec![0; usize::try_from(size).unwrap_or_default()];
                file.read_exact_at(&mut content, position).map_err(|error| format!("{name}: {error}"))?;
                Ok(Some(content))
            }
        }
    }
}

fn within_limit(name: &str, size: u64) -> Result<(), String> {
    if size <= SIZE_LIMIT { Ok(()) } else { Err(format!("{name:?} is larger than {} MiB", SIZE_LIMIT >> 20)) }
}

/// Opens a regular file, and waits for nothing else; `None` where there is none.
fn regular(path: &Path, more: OFlags) -> io::Result<Option<File>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | more;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(descriptor) => File::from(descriptor),
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    if file.metadata()?.is_file() { Ok(Some(file)) } else { Err(io::Error::other("it is no regular file")) }
}

/// What is read of a tar file while its entries are listed; their content is passed over.
struct Headers<'a> {
    file: &'a mut File,
    left: u64,
}

impl Read for Headers<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        self.left = self.left.checked_sub(count as u64).ok_or_else(|| io::Error::other("its headers do not end"))?;
        Ok(count)
    }
}

impl Seek for Headers<'_> {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        self.file.seek(position)
    }
}

fn entries(file: &mut File) -> io::Result<Entries> {
    const TWICE: &str = "is in it twice";
    let mut archive = tar::Archive::new(Headers { file, left: HEADERS_LIMIT });
    let (mut out, mut folders) = (Entries::new(), Vec::new());
    for entry in archive.entries_with_seek()? {
        let mut entry = entry?;
        let kind = entry.header().entry_type();
        let name = entry.path_bytes();
        let Ok(name) = std::str::from_utf8(&name) else { continue };
        let name = clean(name);
        if kind.is_dir() {
            folders.push(name);
            continue;
        }
        let place = if !kind.is_file() {
            Err("is no regular file in it")
        } else if is_sparse(&mut entry)? {
            Err("is a sparse file in it")
        } else {
            Ok((entry.raw_file_position(), entry.size()))
        };
        out.entry(name).and_modify(|known| *known = Err(TWICE)).or_insert(place);
    }
    for folder in folders {
        out.entry(folder).and_modify(|known| *known = Err(TWICE));
    }
    Ok(out)
}

/// A name as Docker makes it of the one in the file: below the folder into which it unpacks.
// Go's path.Clean, moby pkg/archive Unpack
fn clean(name: &str) -> String {
    let mut out: Vec<&str> = Vec::new();
    for part in name.split('/').filter(|part| !part.is_empty() && *part != ".") {
        if part == ".." {
            out.pop();
        } else {
            out.push(part);
        }
    }
    out.join("/")
}

/// Whether a regular file's content is not what stands in the tar file, for readers who know that form.
// GNU tar, "Storing Sparse Files", PAX formats 0.0 to 1.0
fn is_sparse(entry: &mut tar::Entry<'_, impl Read>) -> io::Result<bool> {
    let Some(extensions) = entry.pax_extensions()? else { return Ok(false) };
    for extension in extensions {
        if extension?.key_bytes().starts_with(b"GNU.sparse.") {
            return Ok(true);
        }
    }
    Ok(false)
}
