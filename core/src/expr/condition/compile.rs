//! Parses an expression into a tree in which all names are resolved, within limits.

use cel::common::ast::{CallExpr, Expr, IdedExpr, LiteralValue, operators};

use super::fix;
use super::functions::Function;

/// The maximum length of an expression, in bytes.
const MAX_SOURCE: usize = 1024;
const MAX_DEPTH: usize = 64;
const MAX_NODES: usize = 2_000;
/// The maximum nesting of loops such as all, exists, map and filter.
const MAX_LOOPS: usize = 2;

type Result<T> = std::result::Result<T, String>;

/// A checked expression.
#[derive(Debug)]
pub(super) enum Node {
    Null,
    Bool(bool),
    Int(i64),
    Double(f64),
    Text(String),
    /// The variable `result`.
    Result,
    /// The variable `result` where true or false is needed.
    Truth,
    /// The variable `value`.
    Value,
    /// The variable of the loop at this depth.
    Local(usize),
    List(Vec<Node>),
    Field(Box<Node>, String),
    Has(Box<Node>, String),
    Index(Box<[Node; 2]>),
    Not(Box<Node>),
    Negate(Box<Node>),
    And(Box<[Node; 2]>),
    Or(Box<[Node; 2]>),
    Conditional(Box<[Node; 3]>),
    Binary(Operator, Box<[Node; 2]>),
    /// The first operand, or the second if the first is missing or null.
    Default(Box<[Node; 2]>),
    Call(Function, Vec<Node>),
    Loop(Box<Loop>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
}

/// A macro such as `range.all(x, body)`.
#[derive(Debug)]
pub(super) struct Loop {
    pub kind: LoopKind,
    pub range: Node,
    /// The filter of a map with three arguments.
    pub filter: Option<Node>,
    pub body: Node,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LoopKind {
    All,
    Exists,
    ExistsOne,
    Map,
    Filter,
}

pub(super) fn compile(source: &str) -> Result<Node> {
    if source.len() > MAX_SOURCE {
        return Err(format!("it is longer than {MAX_SOURCE} bytes: shorten it"));
    }
    // Macros stay disabled, so all, exists, map and filter are parsed as calls.
    let tree = cel::Env::default()
        .with_optional_support(false)
        .parser()
        .parse(source)
        .map_err(|errors| fix::parse_errors(source, &errors))?;
    Compiler { nodes: 0, locals: Vec::new() }.node(&tree, 0).map(Node::into_truth)
}

struct Compiler {
    nodes: usize,
    /// The variables of the enclosing loops, outermost first.
    locals: Vec<String>,
}

impl Compiler {
    fn node(&mut self, tree: &IdedExpr, depth: usize) -> Result<Node> {
        self.nodes += 1;
        if depth > MAX_DEPTH || self.nodes > MAX_NODES {
            return Err("it is too complex: simplify it".into());
        }
        let depth = depth + 1;
        match &tree.expr {
            Expr::Literal(literal) => literal_node(literal),
            Expr::Ident(name) => self.variable(name),
            Expr::Select(select) => {
                let operand = self.node(&select.operand, depth)?;
                Ok(Node::Field(Box::new(operand), select.field.clone()))
            }
            Expr::List(list) => Ok(Node::List(self.nodes(&list.elements, depth)?)),
            Expr::Call(call) => self.call(call, depth),
            Expr::Map(_) | Expr::Struct(_) => Err(
                "object literals are not supported in a condition: compare the fields one by one"
                    .into(),
            ),
            Expr::Comprehension(_) | Expr::Unspecified => Err("it cannot be parsed".into()),
        }
    }

    fn nodes(&mut self, trees: &[IdedExpr], depth: usize) -> Result<Vec<Node>> {
        trees.iter().map(|tree| self.node(tree, depth)).collect()
    }

    fn operands<const N: usize>(
        &mut self,
        call: &CallExpr,
        depth: usize,
    ) -> Result<Box<[Node; N]>> {
        let nodes = self.nodes(&call.args, depth)?;
        let nodes: [Node; N] = nodes.try_into().map_err(|_| "an operator has no operand")?;
        Ok(Box::new(nodes))
    }

    /// The operands of an operator that needs true or false.
    fn truths(&mut self, call: &CallExpr, depth: usize) -> Result<Box<[Node; 2]>> {
        let operands: Box<[Node; 2]> = self.operands(call, depth)?;
        Ok(Box::new(operands.map(Node::into_truth)))
    }

    fn variable(&self, name: &str) -> Result<Node> {
        if let Some(depth) = self.locals.iter().rposition(|local| local == name) {
            return Ok(Node::Local(depth));
        }
        match name {
            "result" => Ok(Node::Result),
            "value" => Ok(Node::Value),
            _ => Err(fix::unknown_name(name)),
        }
    }

    fn call(&mut self, call: &CallExpr, depth: usize) -> Result<Node> {
        if let Some(operator) = binary_operator(&call.func_name) {
            let mut operands: Box<[Node; 2]> = self.operands(call, depth)?;
            if operands.iter().any(|it| matches!(it, Node::Bool(_))) {
                *operands = operands.map(Node::into_truth);
            }
            return Ok(Node::Binary(operator, operands));
        }
        match call.func_name.as_str() {
            operators::LOGICAL_AND => Ok(Node::And(self.truths(call, depth)?)),
            operators::LOGICAL_OR => Ok(Node::Or(self.truths(call, depth)?)),
            operators::CONDITIONAL => {
                let [test, yes, no] = *self.operands(call, depth)?;
                Ok(Node::Conditional(Box::new([test.into_truth(), yes, no])))
            }
            operators::INDEX => Ok(Node::Index(self.operands(call, depth)?)),
            operators::LOGICAL_NOT => {
                let [operand] = *self.operands(call, depth)?;
                Ok(Node::Not(Box::new(operand.into_truth())))
            }
            operators::NEGATE => {
                let [operand] = *self.operands(call, depth)?;
                Ok(Node::Negate(Box::new(operand)))
            }
            "has" => self.has(call, depth),
            "default" if call.target.is_none() && call.args.len() == 2 => {
                Ok(Node::Default(self.operands(call, depth)?))
            }
            name => match (loop_kind(name), &call.target) {
                (Some(kind), Some(range)) => self.loop_node(kind, range, call, depth),
                (Some(_), None) => Err(format!("{name} is written LIST.{name}(x, CONDITION ON x)")),
                (None, _) => self.function(call, depth),
            },
        }
    }

    fn has(&mut self, call: &CallExpr, depth: usize) -> Result<Node> {
        match (&call.target, call.args.as_slice()) {
            (None, [IdedExpr { expr: Expr::Select(select), .. }]) => {
                let operand = self.node(&select.operand, depth)?;
                Ok(Node::Has(Box::new(operand), select.field.clone()))
            }
            _ => Err("has needs a field: write has(value.FIELD)".into()),
        }
    }

    fn loop_node(
        &mut self,
        kind: LoopKind,
        range: &IdedExpr,
        call: &CallExpr,
        depth: usize,
    ) -> Result<Node> {
        let name = &call.func_name;
        if self.locals.len() >= MAX_LOOPS {
            return Err(format!(
                "loops are nested more than {MAX_LOOPS} levels deep, at {name}: simplify it"
            ));
        }
        let range = self.node(range, depth)?;
        let (local, filter, body) = match call.args.as_slice() {
            [local, body] => (local, None, body),
            [local, filter, body] if kind == LoopKind::Map => (local, Some(filter), body),
            _ => return Err(format!("{name} is written LIST.{name}(x, CONDITION ON x)")),
        };
        let Expr::Ident(local) = &local.expr else {
            return Err(format!(
                "the first argument of {name} must be a name: write LIST.{name}(x, CONDITION ON x)"
            ));
        };
        self.locals.push(local.clone());
        let filter = filter.map(|it| self.node(it, depth)).transpose()?;
        let body = self.node(body, depth)?;
        self.locals.pop();
        Ok(Node::Loop(Box::new(Loop { kind, range, filter, body })))
    }

    fn function(&mut self, call: &CallExpr, depth: usize) -> Result<Node> {
        let name = &call.func_name;
        let (function, arity) = Function::named(name).ok_or_else(|| fix::unknown_function(name))?;
        let mut operands = Vec::new();
        if let Some(target) = &call.target {
            operands.push(self.node(target, depth)?);
        }
        operands.extend(self.nodes(&call.args, depth)?);
        if operands.len() != arity {
            let s = if arity == 1 { "" } else { "s" };
            return Err(format!("{name} takes {arity} argument{s}, not {}", operands.len()));
        }
        Ok(Node::Call(function, operands))
    }
}

fn literal_node(literal: &LiteralValue) -> Result<Node> {
    Ok(match literal {
        LiteralValue::Null => Node::Null,
        LiteralValue::Boolean(value) => Node::Bool(*value.inner()),
        LiteralValue::Int(value) => Node::Int(*value.inner()),
        LiteralValue::UInt(value) => Node::Int(
            i64::try_from(*value.inner()).map_err(|_| "a number is too large".to_owned())?,
        ),
        LiteralValue::Double(value) => Node::Double(*value.inner()),
        LiteralValue::String(value) => Node::Text(value.inner().to_owned()),
        LiteralValue::Bytes(_) => return Err("bytes are not supported: write text".into()),
    })
}

fn binary_operator(name: &str) -> Option<Operator> {
    Some(match name {
        operators::ADD => Operator::Add,
        operators::SUBSTRACT => Operator::Subtract,
        operators::MULTIPLY => Operator::Multiply,
        operators::DIVIDE => Operator::Divide,
        operators::MODULO => Operator::Remainder,
        operators::EQUALS => Operator::Equal,
        operators::NOT_EQUALS => Operator::NotEqual,
        operators::LESS => Operator::Less,
        operators::LESS_EQUALS => Operator::LessOrEqual,
        operators::GREATER => Operator::Greater,
        operators::GREATER_EQUALS => Operator::GreaterOrEqual,
        operators::IN => Operator::In,
        _ => return None,
    })
}

fn loop_kind(name: &str) -> Option<LoopKind> {
    Some(match name {
        "all" => LoopKind::All,
        "exists" => LoopKind::Exists,
        "exists_one" | "existsOne" => LoopKind::ExistsOne,
        "map" => LoopKind::Map,
        "filter" => LoopKind::Filter,
        _ => return None,
    })
}

impl Operator {
    pub(super) fn is_comparison(self) -> bool {
        use Operator::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, NotEqual};
        matches!(self, Equal | NotEqual | Less | LessOrEqual | Greater | GreaterOrEqual)
    }
}

impl Node {
    /// The operand of an operator that needs true or false.
    fn into_truth(self) -> Self {
        match self {
            Node::Result => Node::Truth,
            other => other,
        }
    }

    pub(super) fn uses_result_as_truth(&self) -> bool {
        self.any(&|node| matches!(node, Node::Truth))
    }

    fn children(&self) -> Vec<&Node> {
        match self {
            Node::List(nodes) | Node::Call(_, nodes) => nodes.iter().collect(),
            Node::Field(node, _) | Node::Has(node, _) | Node::Not(node) | Node::Negate(node) => {
                vec![node]
            }
            Node::Index(nodes)
            | Node::And(nodes)
            | Node::Or(nodes)
            | Node::Binary(_, nodes)
            | Node::Default(nodes) => nodes.iter().collect(),
            Node::Conditional(nodes) => nodes.iter().collect(),
            Node::Loop(loop_) => [Some(&loop_.range), loop_.filter.as_ref(), Some(&loop_.body)]
                .into_iter()
                .flatten()
                .collect(),
            _ => Vec::new(),
        }
    }

    fn any(&self, test: &impl Fn(&Node) -> bool) -> bool {
        test(self) || self.children().into_iter().any(|node| node.any(test))
    }

    pub(super) fn compares_result_with_number(&self) -> bool {
        self.compares_result_with(|node| matches!(node, Node::Int(_) | Node::Double(_)))
    }

    pub(super) fn compares_result_with_text(&self) -> bool {
        self.compares_result_with(|node| matches!(node, Node::Text(_)))
    }

    fn compares_result_with(&self, fits: impl Fn(&Node) -> bool) -> bool {
        self.any(&|node| match node {
            Node::Binary(operator, operands) if operator.is_comparison() => {
                let [left, right] = operands.as_ref();
                matches!(left, Node::Result) && fits(right)
                    || fits(left) && matches!(right, Node::Result)
            }
            _ => false,
        })
    }

    pub(super) fn uses_result_as_list(&self) -> bool {
        self.any(&|node| match node {
            Node::Call(Function::Size, operands) => matches!(operands.as_slice(), [Node::Result]),
            Node::Index(operands) => matches!(operands[0], Node::Result),
            Node::Binary(Operator::In, operands) => matches!(operands[1], Node::Result),
            Node::Loop(loop_) => matches!(loop_.range, Node::Result),
            _ => false,
        })
    }
}
