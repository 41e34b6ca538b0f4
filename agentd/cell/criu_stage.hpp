// SPDX-License-Identifier: GPL-2.0-or-later
// CriuStage: the operation for which CRIU works in a cell, and how far it is. There is one at a
// time. The table says which stage may follow which; any other change aborts. Owned by the Cell;
// DumpJob and RestoreJob take the steps of their own operations.
#pragma once

#include <cstdint>

#include "kernel/base/check.hpp"

namespace souk {

class CriuStage {
  public:
    enum class Stage : uint8_t {
        none,       // no CRIU works, but one may still end
        asked,      // CRIU is wanted; the capsule has not said yet which process is its root
        coming,     // the capsule makes way for CRIU, or CRIU waits for its command
        dumping,    // a dump, from its plan to its end; the job may stand
        draining,   // the same, while souk-init puts what waits at the job's stdio into the image
        undoing,    // the job goes on as soon as CRIU has let it go
        restoring,  // a restore, up to the job's running
        loading,    // the same, while souk-init takes in what waits at the job's stdio
    };

    Stage now() const { return now_; }
    bool is(Stage stage) const { return now_ == stage; }
    bool dumps() const { return now_ >= Stage::dumping && now_ <= Stage::undoing; }
    bool restores() const { return now_ == Stage::restoring || now_ == Stage::loading; }

    void enter(Stage next) {
        MUST(may_follow(now_, next));
        now_ = next;
    }
    // The table: for each stage, the stages that it may follow. Commands may cross an end of
    // CRIU's, so a dump or restore may follow `none`: it fails at once. A job that is found dumped
    // after a restart of the daemon is undone from `none`, too.
    static bool may_follow(Stage before, Stage next) {
        const bool waits = before == Stage::asked || before == Stage::coming;
        switch (next) {
            case Stage::none: return true;
            case Stage::asked: return before == Stage::none || waits;
            case Stage::coming: return before == Stage::asked;
            case Stage::dumping: return before == Stage::none || waits || before == Stage::draining;
            case Stage::draining: return before == Stage::dumping;
            case Stage::undoing: return before <= Stage::undoing;
            case Stage::restoring:
                return before == Stage::none || waits || before == Stage::loading;
            case Stage::loading: return before == Stage::restoring;
        }
        return false;
    }

  private:
    Stage now_ = Stage::none;
};

}  // namespace souk
