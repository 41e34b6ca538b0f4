// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/base/move.hpp"

#include "kernel/base/check.hpp"

namespace souk {

const char* move_form_name(MoveForm form) {
    switch (form) {
        case MoveForm::stop_and_copy: return "stop-and-copy";
        case MoveForm::pages_first: return "pages-first";
        case MoveForm::post_copy: return "post-copy";
    }
    MUST(false);
}

}  // namespace souk
