// SPDX-License-Identifier: GPL-2.0-or-later
// --help-source for a command line of CLI11: what its help says as JSON, in the form of
// tools/common/args.cpp. Heavy header.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>

#include "kernel/base/json.hpp"

namespace souk::tools {

inline void write_cli_option(JsonWriter& w, const CLI::Option& o) {
    const std::string letter = o.get_snames().empty() ? "" : o.get_snames()[0];
    const bool flag = o.get_items_expected_max() == 0;
    const std::string form = o.get_option_text().empty() ? o.get_type_name() : o.get_option_text();
    w.begin_object().field("letter", letter);
    w.field("name", o.get_lnames().empty() ? "" : o.get_lnames()[0]);
    w.field("value", flag ? "" : form.empty() ? "VALUE" : form);
    w.field("required", o.get_required()).field("default", flag ? "" : o.get_default_str());
    w.field("help", o.get_description()).end_object();
}

inline void write_cli_source(JsonWriter& w, const CLI::App& app, const std::string& name) {
    w.begin_object().field("program", name).field("about", app.get_description());
    w.key("options").begin_array();
    for (const CLI::Option* o : app.get_options())
        if (!o->get_lnames().empty() || !o->get_snames().empty()) write_cli_option(w, *o);
    w.end_array().key("arguments").begin_array();
    for (const CLI::Option* o : app.get_options())
        if (o->get_lnames().empty() && o->get_snames().empty())
            w.begin_object()
                .field("name", o->get_name())
                .field("required", o->get_required())
                .field("help", o->get_description())
                .end_object();
    w.end_array().key("commands").begin_array();
    for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; }))
        write_cli_source(w, *sub, name + " " + sub->get_name());
    w.end_array().end_object();
}

// Whether --help-source was the only argument; then the answer was printed.
inline bool cli_source_asked(const CLI::App& app, const char* name, int argc, char** argv) {
    if (argc != 2 || std::string_view(argv[1]) != "--help-source") return false;
    JsonWriter w;
    write_cli_source(w, app, name);
    std::puts(w.take().c_str());
    return true;
}

}  // namespace souk::tools
