// SPDX-License-Identifier: GPL-2.0-or-later
// Pages consist of these: tables with links, lists of a name and a value, links to the next part of
// a list. Pure.
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
};
// These make a column of a value. Money of 0 and values that are not there are `none`.
Column plain_column(Markup title, const char* key);
Column number_column(Markup title, const char* key);
Column money_column(Markup title, const char* key);
Column text_column(Markup title, std::string (*text)(const Json&), bool number = false);

// `caption` names the table for readers who do not see it.
Html table(Markup caption, const std::vector<Column>& columns, const Json& rows, Markup none);
const std::vector<Column>& node_columns();
const std::vector<Column>& job_columns();
const std::vector<Column>& finished_columns();

Html& node_link(Html& h, const std::string& name);
Html& job_link(Html& h, const std::string& id);
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
// "-" as "none"; 0 too where it is money.
std::string or_none(const std::string& text);

}  // namespace souk::tools::web
