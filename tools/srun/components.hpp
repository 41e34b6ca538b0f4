// SPDX-License-Identifier: GPL-2.0-or-later
// srun --components FILE: the components of one job, each with what it needs (docs/gangs.md). The
// file is TOML, or a multi-request of the co-allocator's that srun's users may have
// (components_request.cpp): both become a list of attributes, which is checked here. Errors are one
// line that names file, line and component.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agentd/core/messages.hpp"
#include "kernel/base/result.hpp"

namespace souk::tools {

// The file says this of one component. srun's command line decides what the file does not say.
struct ComponentPlan {
    std::string label;  // its name in the job; empty: c and its number
    ComponentClass role = ComponentClass::required;
    std::string program;  // empty: the command line's
    std::optional<std::vector<std::string>> arguments;
    std::vector<std::pair<std::string, std::string>> environment;
    std::string directory;
    int32_t cpus = 0;
    int64_t memory_mb = 0;
    std::string node;                // the only one for it; empty: any
    Nanos time, cpu_time;            // its limits (--time, --cpu-time); 0: the command line's
    std::string out_file, err_file;  // for its output; empty: the command line's
    std::string at;                  // FILE:LINE
};

// All components: at least one; the first is required, no two have one label. And what the file
// says of the whole job, by the names of options: start, for, finish, promise.
struct ComponentsFile {
    std::vector<ComponentPlan> plan;
    std::map<std::string, std::string> job;
};
// Reads at most `most` components.
Result<ComponentsFile> read_components(const std::string& file, size_t most);
// Parses the text of such a file. Pure.
Result<ComponentsFile> parse_components(std::string_view text, const std::string& file,
                                        size_t most);
// Fails if no node can have this name. Pure.
Status check_node_name(const std::string& name);
// Returns the components' names, in order: the label, or c and the number. Pure.
std::vector<std::string> component_names(const std::vector<ComponentPlan>& plan, size_t count);

namespace components {

// A text with names in it that stand for other texts: "$(DIR)/x".
struct Piece {
    bool name = false;
    std::string text;
};
using Text = std::vector<Piece>;
// A text, or a list of values.
struct Value {
    Text text;
    std::vector<Value> list;
    bool is_list = false;
    uint32_t line = 0;
};
struct Request {
    uint32_t line = 0;
    std::vector<std::pair<std::string, Value>> attributes;  // by the names of TOML
    std::map<std::string, Text> names;                      // over those of the file
    std::vector<std::pair<std::string, Value>> job;         // of the whole job, likewise
};
struct File {
    std::vector<Request> requests;
    std::map<std::string, Text> names;
    std::vector<std::pair<std::string, Value>> job;
};

// components_toml.cpp, components_request.cpp. Errors begin with the line: "7: ...".
Result<File> parse_toml(std::string_view text);
Result<File> parse_request(std::string_view text);

}  // namespace components
}  // namespace souk::tools
