//! Evaluates a condition. One budget counts every step, element and byte, and thus limits time and memory for any
//! expression and response.

use std::rc::Rc;

use super::compile::{Loop, LoopKind, Node};
use super::functions;
use super::operators::{binary, negate};
use super::value::{List, Subject, Text, Val};

/// The maximum number of steps of one evaluation, which take about 20 ms. A step covers up to 32 bytes.
const BUDGET: usize = 500_000;

/// Why an expression has no value.
#[derive(Debug)]
pub(super) enum Fault {
    /// A field, key or element does not exist. `default` handles only this fault.
    Missing(String),
    /// A value has the wrong type.
    Wrong(String),
    /// The budget is used up, which ends the evaluation.
    Spent,
}

pub(super) type Result<T> = std::result::Result<T, Fault>;

pub(super) fn wrong<T>(why: impl Into<String>) -> Result<T> {
    Err(Fault::Wrong(why.into()))
}

pub(super) fn holds(root: &Node, subject: &Subject<'_>) -> std::result::Result<bool, String> {
    let mut eval = Eval { subject, locals: Vec::new(), budget: Budget(BUDGET) };
    match eval.node(root) {
        Ok(Val::Bool(holds)) => Ok(holds),
        Ok(other) => {
            Err(format!("its result is {}, not true or false: add a comparison", other.brief()))
        }
        Err(Fault::Missing(why) | Fault::Wrong(why)) => Err(why),
        Err(Fault::Spent) => {
            Err("it takes too many steps: select less with jsonPath, or simplify it".into())
        }
    }
}

pub(super) struct Budget(usize);

impl Budget {
    pub(super) fn spend(&mut self, steps: usize) -> Result<()> {
        self.0 = self.0.checked_sub(steps).ok_or(Fault::Spent)?;
        Ok(())
    }

    /// Counts bytes that are read or copied.
    pub(super) fn spend_bytes(&mut self, bytes: usize) -> Result<()> {
        self.spend(bytes / 32)
    }
}

struct Eval<'a, 's> {
    subject: &'s Subject<'a>,
    locals: Vec<Val<'a>>,
    budget: Budget,
}

impl<'a> Eval<'a, '_> {
    fn node(&mut self, node: &Node) -> Result<Val<'a>> {
        self.budget.spend(1)?;
        match node {
            Node::Null => Ok(Val::Null),
            Node::Bool(value) => Ok(Val::Bool(*value)),
            Node::Int(value) => Ok(Val::Int(*value)),
            Node::Double(value) => Ok(Val::Double(*value)),
            Node::Text(text) => {
                self.budget.spend_bytes(text.len())?;
                Ok(Val::Text(Text::Built(text.as_str().into())))
            }
            Node::Result => Ok(self.subject.result.clone()),
            Node::Truth => Ok(self.subject.truth()),
            Node::Value => Ok(self.subject.value.clone()),
            Node::Local(depth) => match self.locals.get(*depth) {
                Some(value) => Ok(value.clone()),
                None => wrong("a variable is used outside its loop"),
            },
            Node::List(nodes) => self.list(nodes),
            Node::Field(object, field) => self.field(object, field),
            Node::Has(object, field) => match self.field(object, field) {
                Ok(_) => Ok(Val::Bool(true)),
                Err(Fault::Missing(_)) => Ok(Val::Bool(false)),
                Err(fault) => Err(fault),
            },
            Node::Index(operands) => self.index(operands),
            Node::Not(operand) => self.bool(operand).map(|holds| Val::Bool(!holds)),
            Node::Negate(operand) => negate(self.node(operand)?),
            Node::And(operands) => self.and_or(operands, false),
            Node::Or(operands) => self.and_or(operands, true),
            Node::Conditional(operands) => {
                let [test, yes, no] = operands.as_ref();
                if self.bool(test)? { self.node(yes) } else { self.node(no) }
            }
            Node::Binary(operator, operands) => {
                let [left, right] = operands.as_ref();
                let (left, right) = (self.node(left)?, self.node(right)?);
                binary(*operator, &left, &right, &mut self.budget)
            }
            Node::Default(operands) => {
                let [value, fallback] = operands.as_ref();
                match self.node(value) {
                    Ok(Val::Null) | Err(Fault::Missing(_)) => self.node(fallback),
                    other => other,
                }
            }
            Node::Call(function, operands) => {
                let mut values = Vec::with_capacity(operands.len());
                for operand in operands {
                    values.push(self.node(operand)?);
                }
                functions::call(*function, &values, &mut self.budget)
            }
            Node::Loop(loop_) => self.run_loop(loop_),
        }
    }

    fn bool(&mut self, node: &Node) -> Result<bool> {
        match self.node(node)? {
            Val::Bool(value) => Ok(value),
            other => wrong(format!("{} is not true or false: compare it", other.brief())),
        }
    }

    /// `&&` and `||`. As in CEL, an operand that equals `deciding` decides the result, even if the other is an error.
    fn and_or(&mut self, operands: &[Node; 2], deciding: bool) -> Result<Val<'a>> {
        let left = match self.bool(&operands[0]) {
            Err(Fault::Spent) => return Err(Fault::Spent),
            Ok(left) if left == deciding => return Ok(Val::Bool(deciding)),
            left => left,
        };
        let right = self.bool(&operands[1])?;
        if right == deciding {
            return Ok(Val::Bool(deciding));
        }
        left.map(|_| Val::Bool(right))
    }

    fn list(&mut self, nodes: &[Node]) -> Result<Val<'a>> {
        let mut items = Vec::with_capacity(nodes.len());
        for node in nodes {
            items.push(self.node(node)?);
        }
        Ok(Val::List(List::Built(items.into())))
    }

    fn field(&mut self, object: &Node, field: &str) -> Result<Val<'a>> {
        match self.node(object)? {
            Val::Object(fields) => match fields.get(field) {
                Some(value) => Ok(Val::from_json(value)),
                None => Err(Fault::Missing(format!("there is no field {field}"))),
            },
            other => wrong(format!("cannot read field {field} of {}", other.kind())),
        }
    }

    fn index(&mut self, operands: &[Node; 2]) -> Result<Val<'a>> {
        let (container, index) = (self.node(&operands[0])?, self.node(&operands[1])?);
        match (&container, &index) {
            (Val::List(list), Val::Int(index)) => {
                let found = usize::try_from(*index).ok().and_then(|index| list.get(index));
                found.ok_or_else(|| {
                    Fault::Missing(format!(
                        "there is no element {index} in a list of {}",
                        list.len()
                    ))
                })
            }
            (Val::Object(fields), Val::Text(key)) => match fields.get(key.as_str()) {
                Some(value) => Ok(Val::from_json(value)),
                None => Err(Fault::Missing(format!("there is no field {}", index.brief()))),
            },
            _ => wrong(format!("cannot take element {} of {}", index.brief(), container.kind())),
        }
    }

    fn run_loop(&mut self, loop_: &Loop) -> Result<Val<'a>> {
        let items: Box<dyn Iterator<Item = Val<'a>>> = match self.node(&loop_.range)? {
            Val::List(list) => {
                // The list is shared, not copied.
                Box::new((0..list.len()).filter_map(move |index| list.get(index)))
            }
            Val::Object(fields) => {
                Box::new(fields.keys().map(|key| Val::Text(Text::Borrowed(key))))
            }
            other => {
                return wrong(format!("a loop needs a list, but got {}", other.kind()));
            }
        };
        match loop_.kind {
            LoopKind::All => self.any(loop_, items, false).map(|found| Val::Bool(!found)),
            LoopKind::Exists => self.any(loop_, items, true).map(Val::Bool),
            LoopKind::ExistsOne => {
                let results = self.results(loop_, items)?;
                Ok(Val::Bool(results.len() == 1))
            }
            LoopKind::Map | LoopKind::Filter => {
                let results: Rc<[Val<'a>]> = self.results(loop_, items)?.into();
                Ok(Val::List(List::Built(results)))
            }
        }
    }

    /// Whether the body returns `deciding` for any element; if so, errors in other elements are ignored.
    fn any(
        &mut self,
        loop_: &Loop,
        items: impl Iterator<Item = Val<'a>>,
        deciding: bool,
    ) -> Result<bool> {
        let mut fault = None;
        for item in items {
            match self.with_item(item, |eval| eval.bool(&loop_.body)) {
                Ok(result) if result == deciding => return Ok(true),
                Ok(_) => {}
                Err(Fault::Spent) => return Err(Fault::Spent),
                Err(other) => fault = Some(other),
            }
        }
        fault.map_or(Ok(false), Err)
    }

    /// The elements for which the body holds, or the results of map.
    fn results(
        &mut self,
        loop_: &Loop,
        items: impl Iterator<Item = Val<'a>>,
    ) -> Result<Vec<Val<'a>>> {
        let mut results = Vec::new();
        for item in items {
            let result = self.with_item(item.clone(), |eval| {
                if loop_.kind != LoopKind::Map {
                    return Ok(eval.bool(&loop_.body)?.then_some(item));
                }
                match &loop_.filter {
                    Some(filter) if !eval.bool(filter)? => Ok(None),
                    _ => eval.node(&loop_.body).map(Some),
                }
            })?;
            results.extend(result);
        }
        Ok(results)
    }

    fn with_item<T>(
        &mut self,
        item: Val<'a>,
        run: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        self.budget.spend(1)?;
        self.locals.push(item);
        let outcome = run(self);
        self.locals.pop();
        outcome
    }
}
