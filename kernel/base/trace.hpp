// SPDX-License-Identifier: GPL-2.0-or-later
// Trace: what a pure machine tells of each step: the input, how states changed by it, and the
// outputs. The daemons write it to their log at level debug, the simulators into their own. The
// names come from the tables beside the enums, so that one search finds a word in the log, in a
// test and in the source. A machine without a listener makes no line at all.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernel/base/ids.hpp"

namespace souk {

enum class TraceKind : uint8_t {
    input,   // what came in
    state,   // what a job's state is since
    output,  // what is to be stored, sent or done
};
const char* to_string(TraceKind kind);

// Empty fields and an epoch of 0 are not said.
struct TraceLine {
    const char* machine = "";
    TraceKind kind = TraceKind::input;
    // the name of the input, state or output: "command.ship", "moving.prepare", "do.dump_for_move"
    std::string step;
    JobId job;
    Epoch epoch;
    NodeName node;   // where it came from, goes to, or (state) where the job is
    std::string to;  // "n2.3": the node and epoch that a move goes to
    std::string why;
    bool operator==(const TraceLine&) const = default;
};
// One line of text, as a simulator shows it: "home output command.ship JOB=n1.1 EPOCH=1 NODE=n2".
std::string text(const TraceLine& line);

class TraceListener {
  public:
    virtual ~TraceListener() = default;
    virtual void tell(const TraceLine& line) = 0;
};

// One machine's: knows who listens, and which states were told.
class Tracer {
  public:
    void tell_to(TraceListener* listener) { listener_ = listener; }
    bool on() const { return listener_ != nullptr; }
    void tell(const TraceLine& line) const {
        if (listener_) listener_->tell(line);
    }
    // A state is told when it is another than the one told last. An empty step: the job is not here
    // any more.
    void tell_state(const std::string& name, const TraceLine& line);

  private:
    template <class Machine, class Outputs>
    friend class TraceScene;
    TraceListener* listener_ = nullptr;
    bool in_scene_ = false;
    std::map<std::string, std::string> states_;
};

// One input of a machine, from its beginning to the end of the call. Within it the machine may call
// itself: that is told as part of the first. The machine has `tracer_`, `trace_of(const Output&)`
// and `trace_state(JobId, Epoch)`.
template <class Machine, class Outputs>
class TraceScene {
  public:
    // `make` returns the input's TraceLine; it is called only if somebody listens. quiet: not told
    // if nothing comes of it.
    template <class Make>
    TraceScene(Machine& machine, const Outputs* out, const Make& make, bool quiet = false)
        : machine_(machine), out_(out) {
        if (!machine.tracer_.on() || machine.tracer_.in_scene_) return;
        machine.tracer_.in_scene_ = true;
        input_ = make();
        first_ = out ? out->size() : 0;
        if (!quiet) tell_input();
    }
    ~TraceScene() {
        if (input_) end();
    }
    TraceScene(const TraceScene&) = delete;
    TraceScene& operator=(const TraceScene&) = delete;

  private:
    void tell_input() {
        machine_.tracer_.tell(*input_);
        told_ = true;
    }
    void end() {
        if (!told_ && out_ && out_->size() > first_) tell_input();
        std::set<std::pair<JobId, Epoch>> seen;
        const auto state = [&](const TraceLine& line) {
            if (!seen.insert({line.job, line.epoch}).second) return;
            machine_.trace_state(line.job, line.epoch);
        };
        std::vector<TraceLine> lines;
        for (size_t i = first_; out_ && i < out_->size(); ++i)
            lines.push_back(machine_.trace_of((*out_)[i]));
        if (told_) state(*input_);
        for (const TraceLine& line : lines) state(line);
        for (const TraceLine& line : lines) machine_.tracer_.tell(line);
        machine_.tracer_.in_scene_ = false;
    }

    Machine& machine_;
    const Outputs* out_;
    std::optional<TraceLine> input_;
    size_t first_ = 0;
    bool told_ = false;
};

}  // namespace souk
