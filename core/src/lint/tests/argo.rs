//! What Argo Rollouts documents for its AnalysisTemplates, after a change of kind: it is accepted (in
//! e2e/manifests/good/as-argo-rollouts.yaml, which an end-to-end test applies), or refused with what to write instead.

use super::*;

/// A template with one metric; the fields are YAML, with the indentation of a metric's fields.
fn template(fields: &str) -> String {
    let indent = |text: &str| text.lines().map(|line| format!("    {line}\n")).collect::<String>();
    format!(
        "apiVersion: tkex.tencent.com/v1alpha1\nkind: HookTemplate\nmetadata: {{name: argo}}\nspec:\n  metrics:\n  \
         - name: rate\n{}",
        indent(fields)
    )
}

fn prometheus(fields: &str) -> String {
    template(&format!(
        "provider: {{prometheus: {{address: http://p.example, query: up, {fields}}}}}"
    ))
}

#[test]
fn documented_templates_of_argo_rollouts_are_accepted() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../e2e/manifests/good");
    let text = read(&folder.join("as-argo-rollouts.yaml"));
    assert_eq!(findings(&[&text]), []);
}

#[test]
fn fields_of_argo_rollouts_that_hooks_lack_are_refused_with_what_to_write() {
    let provider = |name: &str| template(&format!("provider: {{{name}: {{query: up}}}}"));
    let call = "provider: {web: {url: http://w.example}}";
    let rows = [
        (
            prometheus("rangeQuery: {start: 'now()', end: 'now()', step: 1m}"),
            "provider.prometheus.rangeQuery",
            "write the range in the query, as in (QUERY)[5m:1m]",
        ),
        (
            prometheus("authentication: {basicAuth: {username: a, password: b}}"),
            "authentication.basicAuth",
            "write basic: {username: {name: SECRET, key: KEY}",
        ),
        (
            prometheus("authentication: {sigv4: {region: r}}"),
            "authentication.sigv4",
            "call a proxy that signs them",
        ),
        (
            prometheus(
                "authentication: {oauth2: {tokenUrl: https://t.example, clientId: a, clientSecret: '{{ args.s }}'}}",
            ),
            "oauth2.clientSecret",
            "write {name: SECRET, key: KEY}",
        ),
        (prometheus("caCert: x"), "prometheus.caCert", "write caSecret: {name: SECRET, key: KEY}"),
        (
            prometheus("timeout: 40, timeoutSeconds: 30"),
            "prometheus.timeout",
            "must not be set together with timeoutSeconds",
        ),
        (
            template(&format!("failureLimit: '{{{{ args.limit }}}}'\n{call}")),
            "failureLimit",
            "write a number, because arguments cannot be used here",
        ),
        (template(&format!("count: '2'\n{call}")), "spec.metrics[0]", "count 2 needs an interval"),
        (
            template(&format!("consecutiveSuccessLimit: 3\n{call}")),
            "consecutiveSuccessLimit",
            "write consecutiveSuccessfulLimit",
        ),
        (
            template(&format!("interval: 5m\n{call}")),
            "spec.metrics[0]",
            "is measured forever: set count, successfulLimit or consecutiveSuccessfulLimit",
        ),
        (provider("datadog"), "provider.datadog", "call the API of that system with web"),
        (
            template(&format!("successCondition: result >= 0.95\n{call}")),
            "successCondition",
            "write asInt(result) < 30 or asFloat(result) < 0.5",
        ),
        (
            template(&format!("successCondition: 'all(result, # < 3)'\n{call}")),
            "successCondition",
            "write LIST.all(x, x < 3)",
        ),
        (
            template(
                "successCondition: result == true\nprovider: {kubernetes: {function: get, fields: [{path: \
                 metadata.labels.idle}]}}",
            ),
            "successCondition",
            "a field's result is text: write result == 'true'",
        ),
        (
            template(
                "successCondition: '!result'\nprovider: {prometheus: {address: http://p.example, query: up}}",
            ),
            "successCondition",
            "a query's result is a number: write result[0] > 0.5",
        ),
        (
            template(call) + "  templates: [{templateName: other}]\n",
            "spec.templates",
            "copy the metrics of these templates into this one",
        ),
    ];
    let list =
        prometheus("timeout: 9").replacen("rate", "rate\n    successCondition: result >= 0.95", 1);
    let found = findings(&[&list]);
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(!found[0].finding.is_error(), "{found:#?}");
    assert!(found[0].finding.message.contains("write result[0] < 0.5"), "{found:#?}");
    for (text, field, fix) in rows {
        let found = findings(&[&text]);
        let is_refused = |it: &Diagnostic| {
            let finding = &it.finding;
            finding.is_error() && finding.field.ends_with(field) && finding.message.contains(fix)
        };
        assert!(found.iter().any(is_refused), "{field}: {fix}\n{text}\n{found:#?}");
    }
}
