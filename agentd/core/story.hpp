// SPDX-License-Identifier: GPL-2.0-or-later
// The story of a job's life: its steps with times. Its home writes them into the job's own record,
// so they are durable with the record's next write (which every change of phase makes) and live as
// long as that: a restart of the home keeps them, and they go when the home forgets the finished
// job. A price alone writes nothing; a crash may lose the newest ones.
//
// Bounded: the first steps and the newest are kept, and how many between them were left out.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernel/base/cause.hpp"
#include "kernel/base/ids.hpp"
#include "kernel/base/money.hpp"
#include "kernel/base/move.hpp"
#include "kernel/base/time.hpp"

namespace souk {

class JsonWriter;

struct StoryStep {
    enum class What : uint8_t {
        submitted = 1,
        changed,     // its terms, by srun -J
        priced,      // what it pays per CPU-hour since
        started,     // on `node`
        moved,       // from `from` to `node`
        frozen,      // to an image of `bytes` on `node`
        thawed,      // on `node`
        stopped,     // where it is: it cannot be dumped, or its node's owner or an order says so
        resumed,     // where it was stopped; by an order: until it ran that took `total`
        failed,      // an order could not be carried out
        checkpoint,  // of `bytes`, at `node`
        went_back,   // to its checkpoint or its beginning: its node was lost
        finished,
        evacuated,  // its image, of `bytes`, from `from` to its home `node`: it lies frozen there
    };
    What what = What::submitted;
    Nanos at;  // Unix time
    NodeName node, from;
    Money price;                              // submitted, changed: the most; priced: what it pays
    MoveForm form = MoveForm::stop_and_copy;  // moved
    // frozen, checkpoint, evacuated: of the image; moved: that went while it stood still
    uint64_t bytes = 0;
    uint64_t precopy_bytes = 0;  // moved: that went before
    // moved: from when it stood still until it ran, and the parts of that, each counted from the
    // same beginning: until its source had sent it, until it was restored, until it was told to
    // run. Below 0: not known.
    Nanos pause{-1}, sent{-1}, held{-1}, released{-1};
    Nanos total{-1};  // with what went before and after
    // frozen, of a component: so many of its gang at one cut, and from the first that stood to the
    // last, as their home heard of it. 0: by itself. Below 0: not known.
    uint32_t components = 0;
    Nanos skew{-1};
    Trouble why;
    uint32_t count = 1;  // so many of these in a row; this is the last
    bool operator==(const StoryStep&) const = default;
};
const char* to_string(StoryStep::What what);

// Its copies share the steps until one of them takes another: a home copies a job's record for each
// write of it.
class Story {
  public:
    static constexpr size_t steps_max = 40, first_kept = 8;
    static constexpr size_t why_max = 200, detail_max = 600;
    Story() = default;
    Story(std::vector<StoryStep> steps, uint32_t left_out);
    const std::vector<StoryStep>& steps() const;
    uint32_t left_out() const { return left_out_; }  // after the first `first_kept`
    // A price, a failure or a checkpoint that follows another of its kind takes its place and
    // counts it.
    void add(StoryStep step);
    bool operator==(const Story& other) const;

  private:
    std::shared_ptr<const std::vector<StoryStep>> steps_;  // null: none
    uint32_t left_out_ = 0;
};

// Its JSON: {left_out, steps: [...]}, as tools/common/replies.md has it, without the braces.
void write_story(JsonWriter& j, const Story& story);
// " (pre-copy, 45.1 MB ahead, 1.2 MB still; sent 3.1, restored 4.0, decided 0.2, running 1.1 ms)";
// empty: nothing is known.
std::string move_parts(const StoryStep& moved);

}  // namespace souk
