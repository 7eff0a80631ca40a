//! The image of a what-if: looked for, and what it has built in.

use super::output::{Failure, note};
use crate::exit::Exit;
use crate::finding::printable;
use crate::image::Image;
use crate::report::ImageSource;
use crate::spelling;
use crate::sys::containers::Places;
use crate::sys::images::{self, FoundImage, ImageError, Store};

/// Whether a file that begins so is compressed; [`find`] says what to do about it.
pub(super) fn is_compressed(start: &[u8]) -> bool {
    images::is_compressed(start)
}

/// The image, for `lint`.
pub(super) fn find(text: &str) -> Result<Image, Failure> {
    Ok(found(text)?.image)
}

fn found(text: &str) -> Result<FoundImage, Failure> {
    let found = images::find(text, Store::Any, &Places::of_environment()).map_err(|error| failure(text, error))?;
    for text in &found.notes {
        note(&printable(text));
    }
    Ok(found)
}

/// The image's `ENV`, and where it was found.
pub(super) fn look(text: &str) -> Result<(Vec<String>, ImageSource), Failure> {
    let found = found(text)?;
    let source = ImageSource::new(text, found.place, found.id, &found.image);
    Ok((found.image.env, source))
}

/// The same for an image that need not be there: what is not known is said in the report.
pub(super) fn look_if_there(name: &str, store: Store<'_>) -> (Vec<String>, ImageSource) {
    match images::find(name, store, &Places::of_environment()) {
        Ok(found) => {
            let source = ImageSource::new(name, found.place, found.id, &found.image);
            (found.image.env, source)
        }
        Err(error) => {
            let reason = printable(&error.to_string());
            (Vec::new(), ImageSource { name: name.to_owned(), found: Err(reason) })
        }
    }
}

fn failure(text: &str, error: ImageError) -> Failure {
    let (exit, hint) = match &error {
        ImageError::Bad { hint, .. } => (Exit::BadInput, hint.clone()),
        ImageError::Missing { names, denied, .. } => {
            let near = names.iter().map(String::as_str).filter(|name| images::is_reference(name));
            let hint = match spelling::nearest(text, near) {
                Some(near) => format!("did you mean --image {near}?"),
                None if *denied => "ask as root, or as somebody who may talk to the engine".to_owned(),
                None => {
                    "a name as docker images and podman images print it, an OCI layout, or what docker save wrote; \
                         nothing is pulled"
                        .to_owned()
                }
            };
            (Exit::Failed, hint)
        }
    };
    Failure::new(exit, error, hint)
}
