"""Chat templates that try to take time or memory without end."""

_TREE = (
    "{% set ns = namespace(v=['x']) %}"
    "{% for i in range(60) %}{% set ns.v = [ns.v, ns.v] %}{% endfor %}"
)
_TUPLES = _TREE.replace("['x']", "('x',)").replace("[ns.v, ns.v]", "(ns.v, ns.v)")
_DEEP = (
    "{% set ns = namespace(v=[]) %}{% for i in range(99999) %}{% set ns.v = [ns.v] %}{% endfor %}"
)
_DEEP_TUPLE = _DEEP.replace("[ns.v]", "(ns.v,)").replace("v=[]", "v=()")


def _grow(start: str, step: str, rounds: int = 80, end: str = "{{ ns.v }}") -> str:
    """A value that `step` makes larger in every round."""
    return (
        "{% set ns = namespace(v=" + start + ") %}{% for i in range(" + str(rounds) + ") %}"
        "{% set ns.v = " + step + " %}{% endfor %}" + end
    )


TIME_BOMBS = {
    "a range of a billion": "{% for i in range(10**9) %}x{% endfor %}",
    "loops in loops": (
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    ),
    "loops whose condition is never true": (
        "{% for a in range(99999) %}{% for b in range(99999) if false %}{% endfor %}{% endfor %}"
    ),
    "a macro that calls itself": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "a macro that calls itself twice": (
        "{% macro m(n) %}{% if n > 0 %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}"
        "{{ m(60) }}"
    ),
    "a macro that calls itself silently": (
        "{% macro m(n) %}{% if n %}{% set a = m(n - 1) %}{% set b = m(n - 1) %}{% endif %}"
        "{% endmacro %}{{ m(60) }}"
    ),
    "a loop that calls itself": ("{% for x in [1, 1] recursive %}{{ loop([1, 1]) }}{% endfor %}"),
    "a call block in a loop": (
        "{% macro m() %}{% for i in range(99999) %}{{ caller() }}{% endfor %}{% endmacro %}"
        "{% call m() %}{% for i in range(99999) %}{% endfor %}{% endcall %}"
    ),
    "filters over long ranges": (
        "{% for a in range(99999) %}{% set x = range(99999)|map('abs')|select|list %}{% endfor %}"
    ),
    "sorting again and again": (
        "{% set l = range(99999)|list %}{% for a in range(99999) %}{% set x = l|sort %}{% endfor %}"
    ),
    "adding up again and again": (
        "{% for a in range(99999) %}{% set x = range(99999)|sum %}{% endfor %}"
    ),
    "searching again and again": (
        "{% set l = range(99999)|list %}{% for a in range(99999) %}{{ -1 in l }}{% endfor %}"
    ),
    "a test over a long list": (
        "{% set l = range(99999)|list %}{{ range(99999)|select('in', l)|list|length }}"
    ),
    "joining characters": (
        "{% set s = 'x' * 999999 %}{% for a in range(99999) %}{% set t = s|join('') %}{% endfor %}"
    ),
    "equal trees compared": _TREE + _TREE.replace("ns", "other") + "{{ ns.v == other.v }}",
    "trees compared by a test": _TREE + _TREE.replace("ns", "other") + "{{ ns.v is eq other.v }}",
    "a tree searched for": _TREE + _TREE.replace("ns", "o") + "{{ [ns.v].index(o.v) }}",
    "a tree counted": _TREE + _TREE.replace("ns", "o") + "{{ [ns.v].count(o.v) }}",
    "a tree remembered by a loop": (
        _TREE + _TREE.replace("ns", "o") + "{% for x in [1, 2] %}{{ loop.changed(ns.v) }}"
        "{% set ns.v = o.v %}{% endfor %}"
    ),
    "a tree of tuples as a key": _TUPLES + "{{ {ns.v: 1} }}",
    "a tree of tuples looked up": _TUPLES + "{{ {'a': 1}[ns.v] }}",
    "a tree of tuples asked for": _TUPLES + "{{ {'a': 1}.get(ns.v) }}",
    "a tree of tuples in a dict": _TUPLES + "{{ dict([(ns.v, 1)]) }}",
    "a tree of tuples in a namespace": _TUPLES + "{% set x = namespace([(ns.v, 1)]) %}",
    "a tree of tuples selected": _TUPLES + "{{ [ns.v]|select('in', {})|list }}",
    "a tree of tuples made unique": _TUPLES + "{{ [ns.v, ns.v]|unique|list }}",
    "trees sorted": _TREE + _TREE.replace("ns", "o") + "{{ [ns.v, o.v]|sort }}",
    "trees grouped": _TREE + "{{ [{'a': ns.v}, {'a': ns.v}]|groupby('a') }}",
    "a deep list compared": _DEEP + _DEEP.replace("ns", "o") + "{{ ns.v == o.v }}",
    "a deep tuple hashed": _DEEP_TUPLE + "{{ {ns.v: 1} }}",
}

MEMORY_BOMBS = {
    "a text times a billion": "{{ 'x' * 10**10 }}",
    "a billion times a text": "{{ 10**10 * 'x' }}",
    "a list times a billion": "{{ (['x'] * 10**10)|length }}",
    "a power": "{{ 10 ** (10 ** 8) }}",
    "a number squared again and again": _grow("3", "ns.v * ns.v"),
    "a text doubled by +": _grow("'x'", "ns.v + ns.v"),
    "a text doubled by ~": _grow("'x'", "ns.v ~ ns.v"),
    "a list doubled by +": _grow("['x']", "ns.v + ns.v", end=""),
    "a text doubled by a block": _grow("'x'", "0", 1, "")
    + "{% set ns.v = 'x' %}{% for i in range(80) %}{% set t %}{{ ns.v }}{{ ns.v }}{% endset %}"
    "{% set ns.v = t %}{% endfor %}",
    "a text doubled by a macro": (
        "{% macro d(x) %}{{ x }}{{ x }}{% endmacro %}" + _grow("'x'", "d(ns.v)")
    ),
    "a text doubled by a filter block": (
        "{% set ns = namespace(v='x') %}{% for i in range(80) %}{% set t %}"
        "{% filter upper %}{{ ns.v }}{{ ns.v }}{% endfilter %}{% endset %}"
        "{% set ns.v = t %}{% endfor %}"
    ),
    "a text doubled by join": _grow("'xx'", "[ns.v, ns.v]|join"),
    "a text doubled by the method join": _grow("'xx'", "''.join([ns.v, ns.v])"),
    "a long separator": "{{ range(9999)|join('x' * 999999) }}",
    "a text doubled by replace": _grow("'x'", "ns.v|replace('x', 'xx')"),
    "a text doubled by the method replace": _grow("'x'", "ns.v.replace('x', 'xx')"),
    "nothing replaced by much": "{{ ('x' * 99999).replace('', 'y' * 99999) }}",
    "a text doubled by format": _grow("'x'", "'{0}{0}'.format(ns.v)"),
    "a text doubled by the filter format": _grow("'x'", "'%s%s'|format(ns.v, ns.v)"),
    "a text doubled by %": _grow("'x'", "'%s%s' % (ns.v, ns.v)"),
    "a name formatted often": "{{ ('%(a)s' * 9999) % {'a': 'x' * 99999} }}",
    "a width for %": "{{ '%999999999d' % 1 }}",
    "a precision for %": "{{ '%.999999999f' % 1 }}",
    "a width beside the format": "{{ '%*d' % (999999999, 1) }}",
    "a width for the filter format": "{{ '%999999999d'|format(1) }}",
    "a width in braces": "{{ '{:999999999}'.format(1) }}",
    "a width from an argument": "{{ '{:{}}'.format(1, 999999999) }}",
    "a width behind a filter": "{{ ('{:999999999}'|attr('format'))(1) }}",
    "center": "{{ 'x'.center(10**10) }}",
    "ljust": "{{ 'x'.ljust(10**10) }}",
    "zfill": "{{ '1'.zfill(10**10) }}",
    "the filter center": "{{ 'x'|center(10**10) }}",
    "the filter center through map": "{{ ['x']|map('center', 10**10)|list }}",
    "expandtabs": "{{ '\t'.expandtabs(10**10) }}",
    "a wide indent": "{{ ('x\n' * 9999)|indent(10**9) }}",
    "a text as indent": "{{ ('x\n' * 9999)|indent('y' * 99999) }}",
    "an indent for JSON": "{{ [[1]]|tojson(indent=10**9) }}",
    "separators for JSON": "{{ (range(9999)|list)|tojson(separators=('x' * 99999, ':')) }}",
    "deep JSON with an indent": (
        "{% set ns = namespace(v=range(9999)|list) %}{% for i in range(90) %}"
        "{% set ns.v = [ns.v, ns.v] if i < 5 else [ns.v] %}{% endfor %}{{ ns.v|tojson(indent=16) }}"
    ),
    "batches filled up": "{{ [1]|batch(10**10, 'x')|list }}",
    "slices filled up": "{{ [1]|slice(10**10, 'x')|list }}",
    "rounding to many digits": "{{ 1|round(10**9, 'ceil') }}",
    "an integer as bytes": "{{ (1).to_bytes(10**10, 'big') }}",
    "letters translated": "{{ ('a' * 99999).translate({97: 'x' * 99999}) }}",
    "a hexadecimal number": "{{ ('f' * 999999)|int(0, 16) }}",
    "words without sense": "{{ lipsum(10**9) }}",
    "a range as a list": "{% for i in range(99) %}{% set x = range(99999)|list %}{% endfor %}"
    + "{{ range(10**9)|list }}",
    "many slices": "{% set s = 'x' * 7999999 %}{% set l = [" + "s[1:], " * 2000 + "] %}",
    "fixed text in a loop": "{% for i in range(99999) %}" + "x" * 9999 + "{% endfor %}",
    "fixed text in a macro": (
        "{% macro m() %}{% for i in range(9999) %}" + "x" * 9999 + "{% endfor %}{% endmacro %}"
        "{% set x = m() %}"
    ),
    "a block of fixed text": (
        "{% set x %}{% for i in range(99999) %}" + "x" * 9999 + "{% endfor %}{% endset %}"
    ),
    "a long text printed often": (
        "{% set s = 'x' * 999999 %}{% for i in range(9999) %}{{ s }}{% endfor %}"
    ),
    "a tree printed": _TREE + "{{ ns.v }}",
    "a tree as text": _TREE + "{{ ns.v|string }}",
    "a tree joined to a text": _TREE + "{{ ns.v ~ '' }}",
    "a tree as JSON": _TREE + "{{ ns.v|tojson }}",
    "a tree in a format": _TREE + "{{ '%s' % ns.v }}{{ '{}'.format(ns.v) }}",
    "a tree in upper case": _TREE + "{{ ns.v|upper }}",
    "a tree in an exception": _TREE + "{{ raise_exception(ns.v) }}",
    "a tree of objects printed": _TREE.replace("[ns.v, ns.v]", "{'a': ns.v, 'b': ns.v}")
    + "{{ ns.v }}",
    "a tree of views printed": _TREE.replace("[ns.v, ns.v]", "{'a': ns.v, 'b': ns.v}")
    + "{{ ns.v.items() }}",
    "a tree of namespaces as JSON": (
        "{% set ns = namespace(v='x') %}{% for i in range(60) %}"
        "{% set ns.v = namespace(a=ns.v, b=ns.v) %}{% endfor %}{{ ns.v|tojson }}"
    ),
    "a tree as the name of an item": _TREE + "{{ {'a': 1}[ns.v] + 1 }}",
    "a list of one long text": (
        "{% set s = 'x' * 999999 %}{% set l = [s] * 99999 %}{{ l|join }}{{ l }}"
    ),
    "a date of great width": "{{ strftime_now('%999999999d') }}",
    "a deep list printed": _DEEP + "{{ ns.v }}",
    "a deep list as JSON": _DEEP + "{{ ns.v|tojson }}",
}
