// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/web/html.hpp"

#include <cmath>
#include <cstdio>

namespace souk::tools::web {

Html& Html::text(std::string_view text) {
    for (const char c : text) {
        switch (c) {
            case '&': out_ += "&amp;"; break;
            case '<': out_ += "&lt;"; break;
            case '>': out_ += "&gt;"; break;
            case '"': out_ += "&quot;"; break;
            case '\'': out_ += "&#39;"; break;
            default:
                // HTML has no control characters but white space.
                out_ += static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t' ? ' ' : c;
        }
    }
    return *this;
}

Html& Html::in_address(std::string_view text) {
    constexpr std::string_view plain =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
    constexpr char digits[] = "0123456789ABCDEF";
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if (plain.find(c) != std::string_view::npos)
            out_ += c;
        else
            (out_ += '%') += {digits[byte >> 4], digits[byte & 15]};
    }
    return *this;
}

Html& Html::number(double value) {
    char text[48];
    std::snprintf(text, sizeof text, "%.1f", std::isfinite(value) ? value : 0.0);
    out_ += text;
    return *this;
}

}  // namespace souk::tools::web
