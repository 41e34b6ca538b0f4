// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/host/settings.hpp"

#include <algorithm>
#include <ctime>

#include "kernel/base/json.hpp"
#include "kernel/base/units.hpp"
#include "kernel/sys/host/moment.hpp"
#include "kernel/sys/net/socket.hpp"

namespace souk::settings {

Result<int64_t> whole(const toml::node& n, int64_t least, int64_t most) {
    const auto v = n.value_exact<int64_t>();
    if (!v || *v < least || *v > most)
        return fail("needs a whole number from " + std::to_string(least) + " to " +
                    std::to_string(most));
    return *v;
}

std::string quoted(const std::string& text) {
    std::string out;
    json_append_string(out, text);  // a basic string of TOML is written alike
    return out;
}

std::string bounds_text(const char* what, int64_t least, int64_t most) {
    return std::string(what) + ", " + std::to_string(least) + " to " + std::to_string(most);
}

Key text(std::string& into) {
    return {[&into](const toml::node& n) -> Status {
                const auto v = n.value_exact<std::string>();
                if (!v || v->empty()) return fail("needs a text in quotes");
                into = *v;
                return {};
            },
            [&into] { return settings::quoted(into); }, "a text"};
}

Key boolean(bool& into) {
    return {[&into](const toml::node& n) -> Status {
                const auto v = n.value_exact<bool>();
                if (!v) return fail("needs true or false");
                into = *v;
                return {};
            },
            [&into] { return into ? "true" : "false"; }, "true or false"};
}

Key moment(Nanos& into) {
    return {[&into](const toml::node& n) -> Status {
                const auto v = n.value_exact<toml::date_time>();
                if (!v || !v->offset)
                    return fail("needs a time with its zone, such as 2026-11-30T12:00:00Z");
                tm parts{};
                parts.tm_year = v->date.year - 1900;
                parts.tm_mon = v->date.month - 1;
                parts.tm_mday = v->date.day;
                parts.tm_hour = v->time.hour;
                parts.tm_min = v->time.minute;
                parts.tm_sec = v->time.second;
                into = Nanos::from_s(::timegm(&parts) - int64_t{60} * v->offset->minutes);
                return {};
            },
            [&into] { return moment_text(into); },
            "a time with its zone, such as 2026-11-30T12:00:00Z"};
}

Key money(Money& into) {
    return {[&into](const toml::node& n) -> Status {
                const auto v = n.value_exact<std::string>();
                if (!v) return fail("needs a price in quotes, such as \"0.5\"");
                TRY_ASSIGN(into, parse_money(*v));
                return {};
            },
            [&into] { return quoted(format_money(into)); }, "an amount in quotes"};
}

namespace {

// A number in `plain`, or a text with a unit of its own.
Key span(Nanos& into, Nanos plain, const char* unit, int64_t least, int64_t most) {
    auto set = [&into, plain, least, most](const toml::node& n) -> Status {
        if (const auto text = n.value_exact<std::string>()) {
            TRY_ASSIGN(into,
                       parse_span(*text, plain, Nanos{plain.ns * least}, Nanos{plain.ns * most}));
            return {};
        }
        const auto v = whole(n, least, most);
        if (!v)
            return fail(v.error().message + ", or a time such as \"" +
                        span_text(Nanos{plain.ns * std::max<int64_t>(least, 1)}) + "\"");
        into = Nanos{plain.ns * *v};
        return {};
    };
    auto show = [&into, plain] {
        if (into.ns % plain.ns == 0) return std::to_string(into.ns / plain.ns);
        return quoted(span_text(into));
    };
    return {std::move(set), std::move(show),
            bounds_text("a time: a whole number, or a text such as \"90s\"", least, most), unit};
}

}  // namespace

Key milliseconds(Nanos& into, int64_t least, int64_t most) {
    return span(into, Nanos::from_ms(1), "milliseconds", least, most);
}
Key seconds(Nanos& into, int64_t least, int64_t most) {
    return span(into, Nanos::from_s(1), "seconds", least, most);
}
Key days(Nanos& into, int64_t least, int64_t most) {
    return span(into, Nanos::from_s(86'400), "days", least, most);
}

Result<int64_t> size_mb(const toml::node& n, int64_t least, int64_t most) {
    if (const auto text = n.value_exact<std::string>()) return parse_size_mb(*text, least, most);
    const auto v = whole(n, least, most);
    if (!v) return fail(v.error().message + ", or a size such as \"4G\"");
    return v;
}

namespace {

// A text with a form of its own.
Key checked(std::string& into, const char* takes, Status (*check)(std::string& text)) {
    return {[&into, check](const toml::node& n) -> Status {
                TRY(text(into).set(n));
                return check(into);
            },
            [&into] { return settings::quoted(into); }, takes};
}

}  // namespace

Key address(std::string& into) {
    return checked(into, "HOST:PORT with a numeric host", [](std::string& text) -> Status {
        TRY_ASSIGN(const Address parsed, Address::parse(text));
        if (parsed.is_unix()) return fail("needs HOST:PORT with a numeric host");
        return {};
    });
}

Key listener(std::string& into) {
    return checked(into, "HOST:PORT", [](std::string& text) -> Status {
        TRY_ASSIGN(const Address parsed, Address::resolve(text));
        if (parsed.is_unix()) return fail("needs HOST:PORT");
        return {};
    });
}

Key peer(std::string& into) {
    return checked(into, "HOST:PORT; the name is looked up again for each connection",
                   [](std::string& text) { return Address::check_host_port(text); });
}

Key socket_path(std::string& into) {
    return checked(into, "the path of a unix socket", [](std::string& text) -> Status {
        if (text.starts_with("unix:")) text.erase(0, 5);
        return Address::parse("unix:" + text).map([](const Address&) {});
    });
}

Key table(std::map<std::string, std::string>& into) {
    auto set = [&into](const toml::node& n) -> Status {
        const toml::table* const all = n.as_table();
        if (!all) return fail("needs a table: { NAME = VALUE, ... }");
        for (const auto& [name, item] : *all) {
            const auto count = item.value_exact<int64_t>();
            const auto text = item.value_exact<std::string>();
            if (!count && !text)
                return fail(std::string(name.str()) +
                            ": needs a whole number, or a text in quotes");
            into[std::string(name.str())] = count ? std::to_string(*count) : *text;
        }
        return {};
    };
    auto show = [&into] {
        std::string all;
        for (const auto& [name, value] : into)
            all += (all.empty() ? " " : ", ") + quoted(name) + " = " + quoted(value);
        return all.empty() ? std::string("{}") : "{" + all + " }";
    };
    return {std::move(set), std::move(show), "a table of names, each with a value"};
}

Key words(std::vector<std::string>& into) {
    auto set = [&into](const toml::node& n) -> Status {
        const toml::array* array = n.as_array();
        if (!array) return fail("needs a list: [\"PROGRAM\", \"ARGUMENT\"]");
        for (const toml::node& item : *array) {
            const auto v = item.value_exact<std::string>();
            if (!v) return fail("needs a list of texts in quotes");
            into.push_back(*v);
        }
        return {};
    };
    auto show = [&into] {
        std::string all;
        for (const std::string& word : into) all += (all.empty() ? "" : ", ") + quoted(word);
        return "[" + all + "]";
    };
    return {std::move(set), std::move(show), "a list of texts"};
}

Status load(const std::string& path, const Settings& settings, Sources& sources,
            const std::string* text) {
    try {
        const toml::table table = text ? toml::parse(*text, path) : toml::parse_file(path);
        for (const auto& [key, node] : table) {
            const std::string where = path + ":" + std::to_string(key.source().begin.line) + ": " +
                                      std::string(key.str());
            const auto known = std::find_if(settings.begin(), settings.end(),
                                            [&](const Setting& s) { return s.name == key.str(); });
            if (known == settings.end()) return fail(where + ": unknown key");
            if (auto set = known->key.set(node); !set) return wrap(where, set.error());
            sources[known->name] = key.source().begin.line;
        }
    } catch (const toml::parse_error& e) {
        const auto line = e.source().begin.line;  // 0: the file itself
        return fail(path + (line ? ":" + std::to_string(line) : "") + ": " +
                    std::string(e.description()));
    }
    return {};
}

ConfigText effective(const Settings& settings, const Sources& sources, const std::string& path) {
    ConfigText all;
    for (const Setting& s : settings) {
        const auto source = sources.find(s.name);
        const std::string value = s.key.show();
        all.values[s.name] = value;
        // A value that depends on the machine stays commented out: whoever saves this text should
        // not fix it for good.
        const bool open = value == "\"\"" || (source == sources.end() && !s.usual.empty());
        std::string line = (open ? "# " : "") + s.name + " = " + value;
        line.append(line.size() < 40 ? 40 - line.size() : 1, ' ');
        if (source != sources.end())
            line += "# " + path + ":" + std::to_string(source->second);
        else
            line += s.usual.empty() ? "# default" : "# default: " + s.usual;
        all.text += line + "\n";
    }
    return all;
}

std::string reference_json(const Settings& settings) {
    JsonWriter w;
    w.begin_array();
    for (const Setting& s : settings) {
        w.begin_object().field("name", s.name).field("takes", s.key.takes);
        w.field("unit", s.key.unit).field("about", s.about).field("example", s.example);
        w.field("computed", !s.usual.empty());
        w.field("default", s.usual.empty() ? s.key.show() : s.usual).end_object();
    }
    w.end_array();
    return w.take();
}

}  // namespace souk::settings
