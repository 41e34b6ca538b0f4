# SPDX-License-Identifier: GPL-2.0-or-later
"""Manual pages, in the man macros of groff. What is said about a program in sentences is in
docs/man/NAME.txt: headings in capitals, paragraphs, and blocks of four blanks; options, commands
and keys come from the program."""
import re

import source

ALL = {**{name: 1 for name in source.COMMANDS}, **{name: 8 for name in source.DAEMONS},
       **{f"{name}.conf": 5 for name in source.DAEMONS}, **{name: 5 for name in source.FORMATS}}


def escaped(text):
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    text = text.replace("`", "\\(ga").replace("^", "\\(ha").replace("~", "\\(ti")
    return "\\&" + text if text.startswith((".", "\\(aq")) else text


def bold(text):
    return f"\\fB{escaped(text)}\\fR"


def italic(text):
    return f"\\fI{escaped(text)}\\fR"


def running(text):
    """A paragraph: `words` are bold, NAME(1) of our pages too."""
    out = []
    for part in re.split(r"(`[^`]+`)", source.tidy(text)):
        if part.startswith("`") and len(part) > 2:
            out.append(bold(part[1:-1]))
        else:
            out.append(re.sub(r"\b([\w\\.-]+)(\([1-8]\))", r"\\fB\1\\fR\2", escaped(part)))
    return "".join(out)


def literal(lines):
    return [".PP", ".nf", ".RS 4", *(escaped(line) for line in lines), ".RE", ".fi"]


def prose(name):
    """Sections of docs/man/NAME.txt: [(heading, [line of groff])]."""
    sections, block = [], []

    def end():
        if block and block[0].startswith("    "):
            sections[-1][1].extend(literal([line[4:] for line in block]))
        elif block:
            sections[-1][1].extend([".PP", running(" ".join(block))])
        block.clear()

    for line in (source.ROOT / "docs/man" / f"{name}.txt").read_text().split("\n"):
        if re.fullmatch(r"[A-Z][A-Z ]+", line):
            end()
            sections.append((line, []))
        elif not line:
            end()
        else:
            if block and block[0].startswith("    ") != line.startswith("    "):
                end()
            block.append(line)
    end()
    return sections


def option_head(option):
    names = [bold("-" + option["letter"])] if option["letter"] else []
    if option["name"]:
        names.append(bold("--" + option["name"]))
    value = option["value"]
    if value.startswith("["):
        names[-1] += escaped(value)
    elif value:
        names[-1] += " " + italic(value)
    return ", ".join(names)


def options_of(app):
    lines = []
    for argument in app.get("arguments", []):
        lines += [".TP", italic(argument["name"]), running(argument["help"])]
    for option in app["options"]:
        about = running(option["help"])
        if option.get("required"):
            about += " (needed)"
        if option.get("default"):
            about += f" (default: {escaped(option['default'])})"
        lines += [".TP", option_head(option), about or "\\&"]
    return lines


def verb_head(words):
    return " ".join(italic(word) if word.strip("[]|()").isupper() else bold(word)
                    for word in words.split())


def synopsis(app):
    if app.get("synopsis"):
        return [".PP", f"{bold(app['program'])} {escaped(source.tidy(app['synopsis']))}"]
    commands = app.get("commands", [])
    if commands:
        return [line for c in commands for line in (".br", f"{bold(c['program'])} [options]")][1:]
    arguments = " ".join(italic(a["name"]) for a in app.get("arguments", []))
    return [".PP", f"{bold(app['program'])} [options] {arguments}".rstrip()]


def head(name, section, about):
    about = source.tidy(about).rstrip(".")
    about = about[0].lower() + about[1:]
    return ['.\\" Made by scripts/manuals from what the program says; do not edit.',
            f'.TH {name.upper()} {section} "" "Souk {source.version()}" "Souk"', ".SH NAME",
            f"{escaped(name)} \\- {escaped(about)}"]


def see_also(name):
    others = [f"{bold(n)}({s})" for n, s in ALL.items() if n != name]
    return [".SH SEE ALSO", ", ".join(others)]


def about_of(app):
    """One sentence for NAME."""
    about = re.sub(r"^[\w-]+: ", "", app["about"].split("\n")[0])
    return about.split(". ")[0].split("; ")[0]


def commands_below(app):
    lines = []
    for command in app.get("commands", []):
        lines += [f".SH {command['program'].upper()}", running(command["about"]),
                  *options_of(command), *commands_below(command)]
    return lines


def program_page(directory, name, section):
    app = source.program(directory, name)
    lines = head(name, section, about_of(app)) + [".SH SYNOPSIS", *synopsis(app)]
    sections = prose(name)
    before = [s for s in sections if s[0] == "DESCRIPTION"]
    for title, body in before:
        lines += [f".SH {title}", *body]
    if app.get("verbs"):
        lines += [".SH COMMANDS"]
        for verb in app["verbs"]:
            lines += [".TP", verb_head(verb["words"]), running(verb["help"])]
    if app["options"] or app.get("arguments"):
        lines += [".SH OPTIONS", *options_of(app)]
    if app.get("notes"):
        lines += [line for part in app["notes"].strip().split("\n\n")
                  for line in (".PP", running(part))]
    lines += commands_below(app)
    for title, body in sections:
        if title != "DESCRIPTION":
            lines += [f".SH {title}", *body]
    return lines + see_also(name)


def setting_lines(setting):
    default = setting["default"]
    lines = [".TP", bold(setting["name"]), running(setting["about"]), ".br"]
    kind = setting["takes"] + (f"; {setting['unit']}" if setting["unit"] else "")
    lines += [f"It takes {escaped(kind)}.", ".br",
              f"Default: {escaped(default if default not in ('', chr(34) * 2) else 'none')}.",
              ".br", f"Example: {bold(setting['name'] + ' = ' + setting['example'])}"]
    return lines


def configuration_page(directory, daemon):
    name = f"{daemon}.conf"
    lines = head(name, 5, f"configuration of {daemon}") + [".SH SYNOPSIS", ".PP",
                                                           bold(f"/etc/souk/{name}")]
    for title, body in prose("conf"):
        lines += [f".SH {title}", *body]
    lines += [".SH KEYS"]
    for setting in source.settings(directory, daemon):
        lines += setting_lines(setting)
    return lines + see_also(name)


def format_page(name):
    about, files = source.FORMATS[name]
    lines = head(name, 5, about) + [".SH DESCRIPTION"]
    for number, file in enumerate(files):
        lines += ([".PP", "\\(em"] if number else []) + literal(source.opening_comment(file))
    return lines + see_also(name)


def write(directory, out):
    out.mkdir(parents=True, exist_ok=True)
    for name, section in ALL.items():
        if name in source.FORMATS:
            lines = format_page(name)
        elif section == 5:
            lines = configuration_page(directory, name.removesuffix(".conf"))
        else:
            lines = program_page(directory, name, section)
        # A heading begins a paragraph by itself.
        text = re.sub(r"^(\.SH .*)\n\.PP$", r"\1", "\n".join(lines), flags=re.M)
        (out / f"{name}.{section}").write_text(text + "\n")
