//! `find` and `findAll`, and the cache of patterns for all rules.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use cel::common::types::{CelInt, CelList, CelString};
use cel::{DeclarationError, Env, ExecutionError};
use parking_lot::Mutex;

use super::{failed, texts};
use crate::schema::pattern::GoPattern;

/// The capacity of the cache. Rules use few patterns; when many others fill it, it is cleared.
const MAX_CACHED: usize = 512;

pub(crate) fn extension(env: &mut Env) -> Result<(), DeclarationError> {
    cel::add_member_overload!(env, fn find: (CelString, CelString) -> Result<CelString>)?;
    cel::add_member_overload!(env, fn find_all: (CelString, CelString) -> Result<CelList>)?;
    cel::add_member_overload!(env, fn find_all_limited: (CelString, CelString, CelInt) -> Result<CelList>,
        name = "findAll")?;
    Ok(())
}

/// Returns a compiled pattern from the cache.
pub(super) fn cached(source: &str) -> Result<Arc<GoPattern>, String> {
    static CACHE: LazyLock<Mutex<HashMap<String, Arc<GoPattern>>>> = LazyLock::new(Mutex::default);
    if let Some(pattern) = CACHE.lock().get(source) {
        return Ok(Arc::clone(pattern));
    }
    let pattern = Arc::new(GoPattern::compile(source)?);
    let mut cache = CACHE.lock();
    if cache.len() >= MAX_CACHED {
        cache.clear();
    }
    cache.insert(source.to_owned(), Arc::clone(&pattern));
    Ok(pattern)
}

fn find(this: &CelString<'_>, pattern: &CelString<'_>) -> Result<CelString<'static>, ExecutionError> {
    let pattern = cached(pattern.inner()).map_err(|error| failed("find", error))?;
    let found = pattern
        .regex()
        .find(this.inner())
        .map(|found| found.as_str().to_owned());
    Ok(CelString::from(found.unwrap_or_default()))
}

fn find_all(this: &CelString<'_>, pattern: &CelString<'_>) -> Result<CelList<'static>, ExecutionError> {
    find_all_limited(this, pattern, &CelInt::from(-1))
}

fn find_all_limited(
    this: &CelString<'_>,
    pattern: &CelString<'_>,
    limit: &CelInt,
) -> Result<CelList<'static>, ExecutionError> {
    let pattern = cached(pattern.inner()).map_err(|error| failed("findAll", error))?;
    let limit = usize::try_from(*limit.inner()).unwrap_or(usize::MAX);
    Ok(texts(
        pattern
            .regex()
            .find_iter(this.inner())
            .take(limit)
            .map(|found| found.as_str().to_owned()),
    ))
}
