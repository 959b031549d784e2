//! The keys of Secrets that one measurement needs: each Secret is read once per measurement, and is not kept.

use std::collections::{BTreeMap, BTreeSet};

use super::call_permit::CallPermit;
use super::cluster::Cluster;
use gamekeeper_core::api::{Metric, Provider, SecretKeyRef};

/// The maximum number of keys per measurement. It is low because a response may be searched for the value of each key,
/// to hide that value.
const MAX_KEYS: usize = 32;

/// Keys of Secrets, with their values once they are read.
#[derive(Default)]
pub(super) struct Keys {
    wanted: BTreeMap<String, BTreeSet<String>>,
    /// The values of each Secret by key, or why it cannot be read.
    secrets: BTreeMap<String, Result<BTreeMap<String, String>, String>>,
}

/// The values are longer than allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooLong;

impl Keys {
    pub(super) fn add(&mut self, key: &SecretKeyRef) {
        let keys = self.wanted.entry(key.name.clone()).or_default();
        keys.insert(key.key.clone());
    }

    /// Adds the keys that hold the credentials and the CA for a metric's call.
    pub(super) fn add_credentials(&mut self, metric: &Metric) {
        for (authentication, ca) in metric.provider.given().map(Provider::trust) {
            ca.iter().for_each(|key| self.add(key));
            let Some(authentication) = authentication else {
                continue;
            };
            let basic = authentication.basic.iter();
            let basic = basic.flat_map(|it| [&it.username, &it.password]);
            let bearer = authentication.bearer.iter().map(|it| &it.token);
            let oauth2 = authentication.oauth2.iter();
            let oauth2 = oauth2.flat_map(|it| [&it.client_id, &it.client_secret]);
            let all = basic.chain(bearer).chain(oauth2);
            all.for_each(|key| self.add(key));
        }
    }

    /// Reads the keys; fails if all values together are longer than `max` bytes.
    pub(super) async fn read(
        &mut self,
        cluster: &Cluster,
        permit: &mut CallPermit,
        mut max: usize,
    ) -> Result<(), TooLong> {
        if self.wanted.values().map(BTreeSet::len).sum::<usize>() > MAX_KEYS {
            let why = format!("the metric needs more than {MAX_KEYS} keys of Secrets");
            let refused = { self.wanted.keys() }.map(|name| (name.clone(), Err(why.clone())));
            self.secrets = refused.collect();
            return Ok(());
        }
        let namespace = permit.namespace().to_owned();
        for (name, keys) in &self.wanted {
            let values = cluster.secret(&namespace, name, keys, permit).await;
            for value in values.iter().flat_map(BTreeMap::values) {
                max = max.checked_sub(value.len()).ok_or(TooLong)?;
            }
            self.secrets.insert(name.clone(), values);
        }
        Ok(())
    }

    pub(super) fn get(&self, key: &SecretKeyRef) -> Result<&str, String> {
        let SecretKeyRef { name, key } = key;
        match self.secrets.get(name) {
            None => Err("needs a cluster".into()),
            Some(Err(why)) => Err(why.clone()),
            Some(Ok(values)) => { values.get(key).map(String::as_str) }
                .ok_or_else(|| format!("secret {name} has no key {key}")),
        }
    }
}
