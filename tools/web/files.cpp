// SPDX-License-Identifier: GPL-2.0-or-later
// Style sheet, script and icon, within the program: it needs no file to find.
#include "tools/web/pages.hpp"

namespace souk::tools::web {

const std::string_view style_css =
#include "tools/web/style.css.inc"
    ;
const std::string_view page_js =
#include "tools/web/page.js.inc"
    ;
const std::string_view icon_svg =
#include "tools/web/icon.svg.inc"
    ;

}  // namespace souk::tools::web
