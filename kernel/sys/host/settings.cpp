// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/host/settings.hpp"

#include <algorithm>

#include "kernel/base/units.hpp"
#include "kernel/sys/net/socket.hpp"

namespace souk::settings {

Result<int64_t> whole(const toml::node& n, int64_t least, int64_t most) {
    const auto v = n.value_exact<int64_t>();
    if (!v || *v < least || *v > most)
        return fail("needs a whole number from " + std::to_string(least) + " to " +
                    std::to_string(most));
    return *v;
}

Setter text(std::string& into) {
    return [&into](const toml::node& n) -> Status {
        const auto v = n.value_exact<std::string>();
        if (!v || v->empty()) return fail("needs a text in quotes");
        into = *v;
        return {};
    };
}

Setter boolean(bool& into) {
    return [&into](const toml::node& n) -> Status {
        const auto v = n.value_exact<bool>();
        if (!v) return fail("needs true or false");
        into = *v;
        return {};
    };
}

Setter money(Money& into) {
    return [&into](const toml::node& n) -> Status {
        const auto v = n.value_exact<std::string>();
        if (!v) return fail("needs a price in quotes, such as \"0.5\"");
        TRY_ASSIGN(into, parse_money(*v));
        return {};
    };
}

namespace {

// A number in `plain`, or a text with a unit of its own.
Setter span(Nanos& into, Nanos plain, int64_t least, int64_t most) {
    return [&into, plain, least, most](const toml::node& n) -> Status {
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
}

}  // namespace

Setter milliseconds(Nanos& into, int64_t least, int64_t most) {
    return span(into, Nanos::from_ms(1), least, most);
}
Setter seconds(Nanos& into, int64_t least, int64_t most) {
    return span(into, Nanos::from_s(1), least, most);
}
Setter days(Nanos& into, int64_t least, int64_t most) {
    return span(into, Nanos::from_s(86'400), least, most);
}

Result<int64_t> size_mb(const toml::node& n, int64_t least, int64_t most) {
    if (const auto text = n.value_exact<std::string>()) return parse_size_mb(*text, least, most);
    const auto v = whole(n, least, most);
    if (!v) return fail(v.error().message + ", or a size such as \"4G\"");
    return v;
}

Setter address(std::string& into) {
    return [&into](const toml::node& n) -> Status {
        TRY(text(into)(n));
        TRY_ASSIGN(const Address parsed, Address::parse(into));
        if (parsed.is_unix()) return fail("needs HOST:PORT with a numeric host");
        return {};
    };
}

Setter listener(std::string& into) {
    return [&into](const toml::node& n) -> Status {
        TRY(text(into)(n));
        TRY_ASSIGN(const Address parsed, Address::resolve(into));
        if (parsed.is_unix()) return fail("needs HOST:PORT");
        return {};
    };
}

Setter peer(std::string& into) {
    return [&into](const toml::node& n) -> Status {
        TRY(text(into)(n));
        return Address::check_host_port(into);
    };
}

Setter socket_path(std::string& into) {
    return [&into](const toml::node& n) -> Status {
        TRY(text(into)(n));
        if (into.starts_with("unix:")) into.erase(0, 5);
        return Address::parse("unix:" + into).map([](const Address&) {});
    };
}

Setter words(std::vector<std::string>& into) {
    return [&into](const toml::node& n) -> Status {
        const toml::array* array = n.as_array();
        if (!array) return fail("needs a list: [\"PROGRAM\", \"ARGUMENT\"]");
        for (const toml::node& item : *array) {
            const auto v = item.value_exact<std::string>();
            if (!v) return fail("needs a list of texts in quotes");
            into.push_back(*v);
        }
        return {};
    };
}

Status load(const std::string& path, const Keys& keys) {
    try {
        const toml::table table = toml::parse_file(path);
        for (const auto& [key, node] : table) {
            const std::string where = path + ":" + std::to_string(key.source().begin.line) + ": " +
                                      std::string(key.str());
            const auto known = keys.find(key.str());
            if (known == keys.end()) return fail(where + ": unknown key");
            if (auto set = known->second(node); !set) return wrap(where, set.error());
        }
    } catch (const toml::parse_error& e) {
        const auto line = e.source().begin.line;  // 0: the file itself
        return fail(path + (line ? ":" + std::to_string(line) : "") + ": " +
                    std::string(e.description()));
    }
    return {};
}

}  // namespace souk::settings
