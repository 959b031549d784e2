//! The result table. It shows medians, because a single round proves nothing.

use std::fmt;

use judge::Counts;

use crate::PODS;
use crate::subject::{Measured, Phase, Subject};

/// The results of all rounds.
#[derive(Debug)]
pub struct Report {
    /// The subjects that were measured.
    pub subjects: &'static [Subject],
    /// The results of each round.
    pub rounds: Vec<Round>,
}

/// The results of one round, by subject.
pub type Round = Vec<(Subject, Measured)>;

type Pick = fn(&Measured) -> Option<&Phase>;

const PHASES: [(&str, Pick); 3] = [
    ("0 to 1,000", |measured| Some(&measured.create)),
    ("update of 1,000", |measured| measured.update.as_ref()),
    ("1,000 to 0", |measured| Some(&measured.delete)),
];

fn result_of(round: &Round, subject: Subject) -> Option<&Measured> {
    let mut all = round.iter();
    all.find(|(found, _)| *found == subject).map(|(_, measured)| measured)
}

/// Pods per second; NaN if the phase was not measured.
fn rate(phase: Option<&Phase>) -> f64 {
    phase.map_or(f64::NAN, |phase| PODS as f64 / phase.time.as_secs_f64())
}

/// The median; NaN if there is no value.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        length if length % 2 == 1 => values[length / 2],
        length => (values[length / 2 - 1] + values[length / 2]) / 2.0,
    }
}

impl Report {
    fn median(&self, subject: Subject, value: impl Fn(&Measured) -> f64) -> f64 {
        let measured = self.rounds.iter().filter_map(|round| result_of(round, subject));
        median(measured.map(value).collect())
    }

    /// In each round, divides the rate of a subject by the rate of another. Returns the median of these ratios.
    fn ratio(&self, subject: Subject, other: Subject, pick: Pick) -> f64 {
        let both = |round| Some((result_of(round, subject)?, result_of(round, other)?));
        let pairs = self.rounds.iter().filter_map(both);
        median(pairs.map(|(a, b)| rate(pick(a)) / rate(pick(b))).collect())
    }

    fn fmt_rates(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| pods/s |{}", PHASES.map(|(name, _)| format!(" {name} |")).concat())?;
        writeln!(f, "|---|---|---|---|")?;
        for &subject in self.subjects {
            let cells = PHASES.map(|(_, pick)| {
                let rate = self.median(subject, |measured| rate(pick(measured)));
                let ratio = |other| self.ratio(subject, other, pick);
                if rate.is_nan() {
                    return " not measured |".to_owned();
                }
                if !subject.is_ours() {
                    return format!(" {rate:.0} |");
                }
                let (bare, native) = (ratio(subject.bare()), ratio(subject.native()));
                match native.is_nan() {
                    true => format!(" {rate:.0} ({bare:.2} of bare) |"),
                    false => format!(" {rate:.0} ({bare:.2} of bare, {native:.1} × native) |"),
                }
            });
            writeln!(f, "| {} |{}", subject.name(), cells.concat())?;
        }
        Ok(())
    }

    fn fmt_writes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| writes per pod |{}", PHASES.map(|(name, _)| format!(" {name} |")).concat())?;
        writeln!(f, "|---|---|---|---|")?;
        for &subject in self.subjects {
            let cells = PHASES.map(|(_, pick)| {
                let median = |count: &dyn Fn(&Counts) -> usize| {
                    self.median(subject, |measured| {
                        pick(measured).map_or(f64::NAN, |phase| count(&phase.writes) as f64)
                    })
                };
                let pod_writes = |all: &Counts| all.sum(|kind| kind.resource.starts_with("pods"));
                let pods = median(&pod_writes) / PODS as f64;
                let all = median(&|all| all.sum(|kind| kind.resource != "leases")) / PODS as f64;
                let refused = median(&|all| all.sum(|kind| kind.code >= 400));
                let kubelets = self.median(subject, |measured| {
                    pick(measured).map_or(f64::NAN, |phase| phase.kubelets as f64)
                });
                let kubelets = kubelets / PODS as f64;
                if pods.is_nan() {
                    return " not measured |".to_owned();
                }
                format!(" {pods:.2} to pods, {all:.2} in all, {refused:.0} refused, {kubelets:.2} by kubelets |")
            });
            writeln!(f, "| {} |{}", subject.name(), cells.concat())?;
        }
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "Medians of {} rounds; ratios are medians of the rounds' ratios.\n",
            self.rounds.len()
        )?;
        self.fmt_rates(f)?;
        writeln!(f)?;
        self.fmt_writes(f)?;
        let ours = self.subjects.iter().rfind(|it| it.is_ours());
        let ours = ours.copied().unwrap_or(Subject::Plain);
        let memory = self
            .median(ours, |measured| measured.memory.unwrap_or(0) as f64 / PODS as f64 / 1024.0);
        writeln!(f, "\nMemory of the operator: {memory:.1} kB more per pod, garbage included.")
    }
}
