// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/srun/components.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>

#include "kernel/base/number.hpp"
#include "kernel/base/units.hpp"
#include "kernel/sys/host/fd.hpp"
#include "tools/srun/limit_options.hpp"

namespace souk::tools {
namespace {

using namespace components;

constexpr size_t file_bytes_max = 1 << 20, text_bytes_max = 1 << 17;

// Resolves the names in the texts of a request. Its own names come before those of the whole file.
class Names {
  public:
    Names(const Request& request, const File& file) : own_(request.names), all_(file.names) {}

    // Fails if a name stands for nothing, or for itself by way of others.
    Result<std::string> resolve(const Text& text) {
        std::string whole;
        for (const Piece& piece : text) {
            if (!piece.name) {
                whole += piece.text;
            } else {
                TRY_ASSIGN(const std::string part, value_of(piece.text));
                whole += part;
            }
            if (whole.size() > text_bytes_max)
                return fail("a text has more than " + std::to_string(text_bytes_max) + " bytes");
        }
        if (whole.find('\0') != std::string::npos) return fail("a text has a zero byte");
        return whole;
    }

  private:
    Result<std::string> value_of(const std::string& name) {
        if (std::ranges::find(open_, name) != open_.end()) {
            std::string circle;
            for (const std::string& one : open_) circle += one + " -> ";
            return fail("names go round in a circle: " + circle + name);
        }
        if (++steps_ > steps_max) return fail("its names stand for too many others");
        const auto own = own_.find(name), all = all_.find(name);
        if (own == own_.end() && all == all_.end())
            return fail("the name '" + name + "' stands for nothing");
        open_.push_back(name);
        auto value = resolve(own != own_.end() ? own->second : all->second);
        open_.pop_back();
        return value;
    }

    const std::map<std::string, Text>& own_;
    const std::map<std::string, Text>& all_;
    static constexpr size_t steps_max = 10'000;
    std::vector<std::string> open_;  // that are being resolved
    size_t steps_ = 0;
};

// Reads one component of the file. `count` says how many components are alike.
struct Reading {
    ComponentPlan plan;
    int64_t count = 1;
    Names names;

    Result<std::string> one(const Value& v) {
        const Value* value = &v;
        if (v.is_list && v.list.size() == 1) value = &v.list[0];
        if (value->is_list) return fail("needs one text");
        return names.resolve(value->text);
    }
    Result<std::vector<std::string>> several(const Value& v) {
        std::vector<std::string> all;
        if (!v.is_list) return fail("needs a list of texts");
        for (const Value& value : v.list) {
            if (value.is_list) return fail("needs a list of texts");
            TRY_ASSIGN(all.emplace_back(), names.resolve(value.text));
        }
        return all;
    }
    Result<int64_t> number(const Value& v, int64_t most) {
        TRY_ASSIGN(const std::string text, one(v));
        const auto n = whole_number<int64_t>(text);
        if (n && *n >= 1 && *n <= most) return *n;
        return fail("'" + text + "' is no whole number from 1 to " + std::to_string(most));
    }
};

// Checks a component's label, which becomes the name of a host.
Status check_component_label(const std::string& label) {
    const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
    const auto digit = [](char c) { return c >= '0' && c <= '9'; };
    const bool good =
        !label.empty() && label.size() <= 63 && letter(label[0]) && label.back() != '-' &&
        std::ranges::all_of(label, [&](char c) { return letter(c) || digit(c) || c == '-'; });
    if (!good)
        return fail("'" + label +
                    "' is no name of a host: a letter, then letters, digits and -, at most 63");
    if (label == "localhost" ||
        (label[0] == 'c' && label.size() > 1 && std::all_of(label.begin() + 1, label.end(), digit)))
        return fail("'" + label + "' is a name that is taken: c0, c1, ... are the components");
    return {};
}

Status set_class(Reading& r, const Value& v) {
    TRY_ASSIGN(const std::string name, r.one(v));
    for (const auto role :
         {ComponentClass::required, ComponentClass::interactive, ComponentClass::optional})
        if (name == to_string(role)) {
            r.plan.role = role;
            return {};
        }
    return fail("'" + name + "' is none of required, interactive and optional");
}

Status set_environment(Reading& r, const Value& v) {
    if (!v.is_list) return fail("needs pairs of a name and a value");
    for (const Value& pair : v.list) {
        if (!pair.is_list || pair.list.size() != 2)
            return fail("needs pairs of a name and a value");
        TRY_ASSIGN(std::string name, r.one(pair.list[0]));
        TRY_ASSIGN(std::string value, r.one(pair.list[1]));
        if (name.empty() || name.find('=') != std::string::npos)
            return fail("'" + name + "' is no name of a variable");
        r.plan.environment.emplace_back(std::move(name), std::move(value));
    }
    return {};
}

// The file lies beside the component's directory if that is said, as its program would open it.
Status set_file(Reading& r, const Value& v, std::string& file) {
    TRY_ASSIGN(file, r.one(v));
    return file.empty() ? fail("is empty") : Status();
}

Status set_limit(Reading& r, const Value& v, Nanos& limit) {
    TRY_ASSIGN(const std::string text, r.one(v));
    TRY_ASSIGN(limit, parse_limit(text));
    return {};
}

using Take = Status (*)(Reading&, const Value&);
const std::pair<const char*, Take> attributes[] = {
    {"label",
     [](Reading& r, const Value& v) -> Status {
         TRY_ASSIGN(r.plan.label, r.one(v));
         return check_component_label(r.plan.label);
     }},
    {"count",
     [](Reading& r, const Value& v) -> Status {
         TRY_ASSIGN(r.count, r.number(v, 1'000'000));
         return {};
     }},
    {"class", set_class},
    {"program",
     [](Reading& r, const Value& v) -> Status {
         TRY_ASSIGN(r.plan.program, r.one(v));
         return r.plan.program.empty() ? fail("is empty") : Status();
     }},
    {"arguments",
     [](Reading& r, const Value& v) -> Status {
         TRY_ASSIGN(r.plan.arguments, r.several(v));
         return {};
     }},
    {"environment", set_environment},
    {"directory",
     [](Reading& r, const Value& v) -> Status {
         TRY_ASSIGN(r.plan.directory, r.one(v));
         if (r.plan.directory.starts_with('/')) return {};
         return fail("'" + r.plan.directory + "' is no absolute path");
     }},
    {"cpus",
     [](Reading& r, const Value& v) -> Status {
         TRY_ASSIGN(const int64_t cpus, r.number(v, 65'536));
         r.plan.cpus = static_cast<int32_t>(cpus);
         return {};
     }},
    {"memory",
     [](Reading& r, const Value& v) -> Status {
         TRY_ASSIGN(const std::string text, r.one(v));
         TRY_ASSIGN(r.plan.memory_mb, parse_size_mb(text, 1, 1 << 30));
         return {};
     }},
    {"node",
     [](Reading& r, const Value& v) -> Status {
         TRY_ASSIGN(r.plan.node, r.one(v));
         return check_node_name(r.plan.node);
     }},
    {"time", [](Reading& r, const Value& v) { return set_limit(r, v, r.plan.time); }},
    {"cpu_time", [](Reading& r, const Value& v) { return set_limit(r, v, r.plan.cpu_time); }},
    {"output", [](Reading& r, const Value& v) { return set_file(r, v, r.plan.out_file); }},
    {"error", [](Reading& r, const Value& v) { return set_file(r, v, r.plan.err_file); }},
    {"contact",
     [](Reading& r, const Value& v) -> Status {
         TRY_ASSIGN(const std::string contact, r.one(v));
         r.plan.node = contact.substr(0, contact.find_first_of(".:/"));
         const Status named = check_node_name(r.plan.node);
         return named ? named : fail("'" + contact + "': " + named.error().message);
     }},
    {"place",
     [](Reading&, const Value&) -> Status {
         return fail("is a contact of a manager of one cluster; say node = NAME, or leave it out");
     }},
};

std::string all_attributes() {
    std::string all;
    for (const auto& [name, take] : attributes)
        if (name != std::string_view("contact"))
            all += (all.empty() ? "" : ", ") + std::string(name);
    return all;
}

Status take(Reading& r, const std::string& name, const Value& value) {
    for (const auto& [known, take_it] : attributes) {
        if (name != known) continue;
        const Status taken = take_it(r, value);
        return taken ? taken : wrap(name, taken.error());
    }
    return fail("'" + name + "' is none of " + all_attributes());
}

Status check_all(const std::vector<ComponentPlan>& plan) {
    if (plan.empty()) return fail("it has no component");
    if (plan[0].role != ComponentClass::required)
        return fail(plan[0].at + ": the first component is " + to_string(plan[0].role) +
                    ": it must be required");
    std::map<std::string, const ComponentPlan*> labels;
    for (const ComponentPlan& one : plan) {
        if (one.label.empty()) continue;
        const auto [known, fresh] = labels.emplace(one.label, &one);
        if (!fresh)
            return fail(one.at + ": the label '" + one.label + "' is that of another component, " +
                        known->second->at);
    }
    return {};
}

// A request says of the whole job what the others say, or nothing.
Status take_job(const std::vector<std::pair<std::string, Value>>& words, Names names,
                std::map<std::string, std::string>& job) {
    constexpr const char* known[] = {"start", "for", "finish", "promise"};
    Reading reading{{}, 1, std::move(names)};
    for (const auto& [name, value] : words) {
        const std::string line = std::to_string(value.line) + ": ";
        if (std::ranges::find(known, name) == std::end(known))
            return fail(line + "'" + name + "' is none of start, for, finish and promise");
        const auto text = reading.one(value);
        if (!text) return wrap(line + name, text.error());
        const auto [had, is_new] = job.emplace(name, *text);
        if (!is_new && had->second != *text)
            return fail(line + name + ": '" + *text + "' is not '" + had->second +
                        "': it is of the whole job, and all requests say the same");
    }
    return {};
}

}  // namespace

Result<ComponentsFile> parse_components(std::string_view text, const std::string& file,
                                        size_t most) {
    const size_t begin = text.find_first_not_of(" \t\r\n");
    const char first = begin == std::string_view::npos ? ' ' : text[begin];
    const bool request = first == '+' || first == '&' || first == '(';
    auto parsed = request ? parse_request(text) : parse_toml(text);
    if (!parsed) return fail(file + ":" + parsed.error().message);
    ComponentsFile all;
    std::vector<ComponentPlan>& plan = all.plan;
    const Request whole;
    if (const Status said = take_job(parsed->job, Names(whole, *parsed), all.job); !said)
        return fail(file + ":" + said.error().message);
    for (const Request& r : parsed->requests) {
        if (const Status said = take_job(r.job, Names(r, *parsed), all.job); !said)
            return fail(file + ":" + said.error().message);
        Reading reading{{}, 1, Names(r, *parsed)};
        reading.plan.at = file + ":" + std::to_string(r.line);
        for (const auto& [name, value] : r.attributes)
            if (const Status taken = take(reading, name, value); !taken)
                return fail(file + ":" + std::to_string(value.line) + ": component " +
                            std::to_string(plan.size()) + ": " + taken.error().message);
        if (plan.size() + static_cast<size_t>(reading.count) > most)
            return fail(reading.plan.at + ": a job has at most " + std::to_string(most) +
                        " components, these are " +
                        std::to_string(plan.size() + static_cast<size_t>(reading.count)));
        for (std::string* name : {&reading.plan.out_file, &reading.plan.err_file})
            if (!name->empty() && name->front() != '/' && !reading.plan.directory.empty())
                *name = reading.plan.directory + "/" + *name;
        for (int64_t i = 0; i < reading.count; ++i) {
            plan.push_back(reading.plan);
            if (reading.count > 1 && !reading.plan.label.empty())
                plan.back().label += "-" + std::to_string(i);
        }
    }
    const Status good = check_all(plan);
    if (!good)
        return fail(plan.empty() ? file + ": " + good.error().message : good.error().message);
    return all;
}

Result<ComponentsFile> read_components(const std::string& file, size_t most) {
    const Fd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd) return fail_errno(file, errno);
    std::string text(file_bytes_max + 1, '\0');
    size_t size = 0;
    while (size < text.size()) {
        const ssize_t n = ::read(fd.get(), text.data() + size, text.size() - size);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return fail_errno(file, errno);
        if (n == 0) break;
        size += static_cast<size_t>(n);
    }
    if (size > file_bytes_max) return fail(file + " has more than 1 MiB");
    text.resize(size);
    return parse_components(text, file, most);
}

Status check_node_name(const std::string& name) {
    if (valid_node_name(name)) return {};
    return fail("'" + name + "' is no name of a node");
}

std::vector<std::string> component_names(const std::vector<ComponentPlan>& plan, size_t count) {
    std::vector<std::string> names;
    for (size_t i = 0; i < count; ++i)
        names.push_back(i < plan.size() && !plan[i].label.empty() ? plan[i].label
                                                                  : "c" + std::to_string(i));
    return names;
}

}  // namespace souk::tools
