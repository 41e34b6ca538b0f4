// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/base/move.hpp"

#include "kernel/base/check.hpp"

namespace souk {

const char* to_string(MoveForm form) {
    switch (form) {
        case MoveForm::stop_and_copy: return "stop-and-copy";
        case MoveForm::pages_first: return "pages-first";
        case MoveForm::post_copy: return "post-copy";
    }
    MUST(false);
}

const char* to_string(MovePolicy policy) {
    switch (policy) {
        case MovePolicy::automatic: return "auto";
        case MovePolicy::safe: return "safe";
        case MovePolicy::fast: return "fast";
    }
    MUST(false);
}

const char* to_string(NetMode mode) {
    switch (mode) {
        case NetMode::host: return "host";
        case NetMode::own: return "own";
    }
    MUST(false);
}

const char* to_string(FilesMode mode) {
    switch (mode) {
        case FilesMode::local: return "local";
        case FilesMode::home: return "home";
    }
    MUST(false);
}

std::optional<FilesWish> files_wish(std::string_view name) {
    if (name == "auto") return FilesWish{FilesMode::home, true};
    for (const FilesMode mode : {FilesMode::local, FilesMode::home})
        if (name == to_string(mode)) return FilesWish{mode, false};
    return std::nullopt;
}

const char* to_string(TcpPolicy policy) {
    switch (policy) {
        case TcpPolicy::close: return "close";
        case TcpPolicy::refuse: return "refuse";
        case TcpPolicy::keep: return "keep";
    }
    MUST(false);
}

const char* move_name(const MoveForecast& forecast) {
    if (forecast.precopy_bytes == 0) return to_string(forecast.form);
    return forecast.form == MoveForm::post_copy ? "pre-copy, post-copy" : "pre-copy";
}

}  // namespace souk
