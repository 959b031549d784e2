//! What to write in place of fields of Argo Rollouts' AnalysisTemplates that a HookTemplate does not have.

use crate::admission::Finding;

const SECRET: &str =
    "write {name: SECRET, key: KEY}, because credentials are read from Secrets alone";
const LIMIT: &str = "write a number, because arguments cannot be used here";
const NO_PROVIDER: &str =
    "call the API of that system with web, or query it with prometheus if it understands PromQL";

/// The ends of fields, and what to write instead.
const FIXES: [(&str, &str); 24] = [
    (
        ".prometheus.rangeQuery",
        "write the range in the query, as in (QUERY)[5m:1m], whose result is the list of all values",
    ),
    (
        ".authentication.basicAuth",
        "write basic: {username: {name: SECRET, key: KEY}, password: {name: SECRET, key: KEY}}",
    ),
    (".authentication.sigv4", "requests cannot be signed for AWS: call a proxy that signs them"),
    (".oauth2.clientId", SECRET),
    (".oauth2.clientSecret", SECRET),
    (".prometheus.caCert", "write caSecret: {name: SECRET, key: KEY}"),
    (".web.caCert", "write caSecret: {name: SECRET, key: KEY}"),
    (".consecutiveSuccessLimit", "write consecutiveSuccessfulLimit"),
    ("spec.templates", "copy the metrics of these templates into this one"),
    (".count", LIMIT),
    (".failureLimit", LIMIT),
    (".inconclusiveLimit", LIMIT),
    (".consecutiveErrorLimit", LIMIT),
    (".successfulLimit", LIMIT),
    (".consecutiveSuccessfulLimit", LIMIT),
    (".provider.cloudWatch", NO_PROVIDER),
    (".provider.datadog", NO_PROVIDER),
    (".provider.graphite", NO_PROVIDER),
    (".provider.influxdb", NO_PROVIDER),
    (".provider.kayenta", NO_PROVIDER),
    (".provider.newRelic", NO_PROVIDER),
    (".provider.plugin", NO_PROVIDER),
    (".provider.skywalking", NO_PROVIDER),
    (".provider.wavefront", NO_PROVIDER),
];

/// Adds the fix to a finding about such a field.
pub(super) fn with_fix(finding: Finding) -> Finding {
    let is_text_instead = ["must be of type object: \"string\"", "should match '^[0-9]{1,9}$'"]
        .iter()
        .any(|it| finding.message.ends_with(it));
    let is_unknown = finding.message.starts_with("unknown field ");
    let fix = FIXES.iter().find(|(end, _)| finding.field.ends_with(end));
    match fix {
        Some((_, fix)) if is_unknown || is_text_instead => {
            let message = format!("{}: {fix}", finding.message);
            Finding { message, ..finding }
        }
        _ => finding,
    }
}
