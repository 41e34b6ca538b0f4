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

const char* move_name(const MoveForecast& forecast) {
    if (forecast.ahead_bytes == 0) return move_form_name(forecast.form);
    return forecast.form == MoveForm::post_copy ? "pre-copy, post-copy" : "pre-copy";
}

}  // namespace souk
