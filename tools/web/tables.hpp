// SPDX-License-Identifier: GPL-2.0-or-later
// Pages consist of these: tables with links, lists of a name and a value, links to the next part of
// a list. Pure.
//
// "-" says that something does not apply, "0" is zero, and a figure has at most three digits that
// count.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tools/web/pages.hpp"

namespace souk::tools::web {

struct Column {
    Markup title;
    bool number = false;  // to the right
    std::function<void(Html&, const Json&)> cell;
    Markup kind =
        "";  // a class of style.css: "id", "minor" (a small window leaves it out), "words"
    Markup unit = "";  // stands small in the title
};
// These make a column of a value.
Column plain_column(Markup title, const char* key, Markup kind = "");
Column number_column(Markup title, const char* key, Markup kind = "");
Column money_column(Markup title, const char* key, Markup unit = "", Markup kind = "");
Column text_column(Markup title, std::string (*text)(const Json&), bool number = false,
                   Markup kind = "");

inline constexpr Markup an_hour = "per CPU-hour";
// "45 per CPU-hour"; "-" and "0" as they are.
std::string with_unit(const std::string& figure, std::string_view unit);

// `caption` names the table for readers who do not see it. `none`: what it says without a row. A
// row with `part_of` is one of a group above it.
Html table(Markup caption, const std::vector<Column>& columns, const Json& rows, Markup none);
const std::vector<Column>& node_columns();
const std::vector<Column>& site_columns();
// `fold` leads to the same page with a group's jobs; its query ends before the group's id.
std::vector<Column> job_columns(const Fold& fold = {});
const std::vector<Column>& finished_columns();

Html& node_link(Html& h, const std::string& name);
Html& job_link(Html& h, const std::string& id);
// Writes the state in one word and its colour.
Html& write_state(Html& h, const Json& job_or_node);
// Links to where the list begins and goes on.
Html pager(const Listed& list, Markup path);

struct Place {
    Markup path, name;
};
// Links to the same page with one of these; `chosen` is the one that is shown.
Html choice(Markup label, Markup address, std::span<const Place> places, std::string_view chosen);
void text_input(Html& h, Markup name, Markup label, const std::string& value);

// "Name: value" of what an object has, as <dl>.
class Facts {
  public:
    Facts& add(Markup name, const std::string& value);  // "-" and "" are left out
    Facts& add(Markup name, const Html& value);
    Html take();

  private:
    Html h_;
};

}  // namespace souk::tools::web
