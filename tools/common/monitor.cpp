// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/common/monitor.hpp"

#include <algorithm>
#include <cstdlib>

#include "kernel/base/text.hpp"
#include "tools/common/job_state.hpp"

namespace souk::tools::mmon {
namespace {

struct Column {
    const char* title;
    bool right;
    std::string (*text)(const Json&);
    const char* by = nullptr;  // the number that it is sorted by; null: by its text
};

// Says the same as node_state, in a column.
std::string state_of(const Json& n) {
    const int64_t of = n.value("leaving_of", int64_t{0}), left = n.value("leaving", int64_t{0});
    if (of <= 0 || left <= 0) return field(n, "status");
    return field(n, "status") + ", " + std::to_string(std::max<int64_t>(0, of - left)) + "/" +
           std::to_string(of) + " gone";
}

std::string money_or_none(const Json& j, const char* key) {
    const std::string text = rounded_money(j, key);
    return text == "0" ? "none" : text;
}

std::string name_of(const Json& j) {
    const std::string name = field(j, "name");
    return name == "-" ? field(j, "command") : name;
}

std::string where_to(const Json& j) {
    const std::string to = field(j, "going_to");
    return to == "-" ? field(j, "where") : field(j, "where") + ">" + to;
}

const std::vector<Column>& columns_of(Panel panel) {
    static const std::vector<Column> nodes = {
        {"NODE", false, [](const Json& n) { return field(n, "node"); }},
        {"STATE", false, state_of},
        {"JOBS", true, [](const Json& n) { return field(n, "guests"); }},
        {"LOAD", true, [](const Json& n) { return percent(n, "load_permille"); }, "load_permille"},
        {"PRICE", true, [](const Json& n) { return money_or_none(n, "current_price"); },
         "current_price"},
        {"NEXT", true, [](const Json& n) { return money_or_none(n, "next_price"); }, "next_price"},
        {"RESERVE", true, [](const Json& n) { return money_or_none(n, "reserve"); }, "reserve"},
        {"SPEED", true, [](const Json& n) { return field(n, "speed"); }},
        {"CPUS", true, [](const Json& n) { return field(n, "cpus"); }},
        {"FREE", true, free_memory, "free_mb"},
        {"EARNED", true, [](const Json& n) { return money_or_none(n, "earned"); }, "earned"},
    };
    static const std::vector<Column> jobs = {
        {"JOB", false, [](const Json& j) { return field(j, "id"); }},
        {"USER", false, [](const Json& j) { return field(j, "user"); }},
        {"STATE", false, job_state},
        {"WHERE", false, where_to},
        {"BID", true, [](const Json& j) { return rounded_money(j, "value"); }, "value"},
        {"PRICE", true, [](const Json& j) { return money_or_none(j, "price"); }, "price"},
        {"COST", true, [](const Json& j) { return money_or_none(j, "cost"); }, "cost"},
        {"RUN", true, [](const Json& j) { return duration(j, "runtime_s"); }, "runtime_s"},
        {"NAME", false, name_of},
        {"WHY", false, [](const Json& j) { return field(j, "comment"); }},
    };
    static const std::vector<Column> moves = {
        {"JOB", false, [](const Json& j) { return field(j, "id"); }},
        {"STEP", false, [](const Json& j) { return field(j, "status"); }},
        {"FROM", false, [](const Json& j) { return field(j, "where"); }},
        {"TO", false, [](const Json& j) { return field(j, "going_to"); }},
        {"IMAGE", true, [](const Json& j) { return bytes(j, "image_bytes"); }, "image_bytes"},
        {"SENT", false, sent, "sent_bytes"},
        {"EXPECTED", true, [](const Json& j) { return milliseconds(j, "forecast_total_ms"); },
         "forecast_total_ms"},
        {"WHY", false, [](const Json& j) { return field(j, "comment"); }},
    };
    return panel == Panel::nodes ? nodes : panel == Panel::jobs ? jobs : moves;
}

bool is_moving(const Json& job) {
    const std::string s = field(job, "status");
    return s == "moving" || s == "freezing" || s == "thawing" || s == "starting";
}

const char* id_key(Panel panel) { return panel == Panel::nodes ? "node" : "id"; }
size_t at(Panel panel) { return static_cast<size_t>(panel); }

size_t characters(const std::string& text) {
    return static_cast<size_t>(
        std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

// Returns at most so many characters, with control characters as blanks.
std::string cut(const std::string& said, size_t columns) {
    std::string text = blank_controls(said);
    size_t seen = 0, i = 0;
    for (; i < text.size(); ++i) {
        if ((text[i] & 0xc0) != 0x80 && seen++ == columns) break;
    }
    text.resize(i);
    return text;
}

std::string padded(const std::string& text, size_t width, bool right) {
    const size_t has = characters(text);
    if (has >= width) return cut(text, width);
    const std::string blanks(width - has, ' ');
    return right ? blanks + text : text + blanks;
}

// Numbers by value ("9" before "10"), other text by letters; n2.9 before n2.10.
bool less(const std::string& a, const std::string& b) {
    size_t i = 0, j = 0;
    const auto digit = [](char c) { return c >= '0' && c <= '9'; };
    while (i < a.size() && j < b.size()) {
        if (digit(a[i]) && digit(b[j])) {
            const double x = std::strtod(a.c_str() + i, nullptr);
            const double y = std::strtod(b.c_str() + j, nullptr);
            const auto whole_a = std::strtoull(a.c_str() + i, nullptr, 10),
                       whole_b = std::strtoull(b.c_str() + j, nullptr, 10);
            if (whole_a != whole_b) return whole_a < whole_b;
            if (i == 0 && j == 0 && x != y) return x < y;
            while (i < a.size() && digit(a[i])) ++i;
            while (j < b.size() && digit(b[j])) ++j;
            continue;
        }
        if (a[i] != b[j]) return a[i] < b[j];
        ++i, ++j;
    }
    return a.size() - i < b.size() - j;
}

struct Row {
    const Json* of;
    std::vector<std::string> cells;
};

std::vector<Row> rows_of(const Seen& seen, const View& view, Panel panel) {
    const auto& columns = columns_of(panel);
    std::vector<Row> rows;
    for (const Json& one : panel == Panel::nodes ? seen.nodes : seen.jobs) {
        if (panel == Panel::moves && !is_moving(one)) continue;
        Row row{&one, {}};
        bool shown = view.filter.empty();
        for (const Column& column : columns) {
            row.cells.push_back(column.text(one));
            shown = shown || row.cells.back().find(view.filter) != std::string::npos;
        }
        if (shown) rows.push_back(std::move(row));
    }
    const size_t by = std::min(view.sort[at(panel)], columns.size() - 1);
    const bool down = view.down[at(panel)];
    const char* const key = columns[by].by;
    const auto number = [key](const Row& row) {
        const auto it = row.of->find(key);
        return it != row.of->end() && it->is_number() ? it->get<double>() : -1.0;
    };
    const auto before = [&](const Row& a, const Row& b) {
        return key ? number(a) < number(b) : less(a.cells[by], b.cells[by]);
    };
    std::stable_sort(rows.begin(), rows.end(), [&](const Row& a, const Row& b) {
        return down ? before(b, a) : before(a, b);
    });
    return rows;
}

// The width of each column: what is widest in it, the last one what is left.
std::vector<size_t> widths_of(Panel panel, const std::vector<Row>& rows, size_t from, size_t to) {
    const size_t most = panel == Panel::moves ? 28 : 20;
    const auto& columns = columns_of(panel);
    std::vector<size_t> widths;
    for (size_t c = 0; c < columns.size(); ++c) {
        size_t width = characters(columns[c].title);
        for (size_t r = from; r < to; ++r) width = std::max(width, characters(rows[r].cells[c]));
        widths.push_back(c + 1 < columns.size() ? std::min(width, most) : width);
    }
    return widths;
}

std::string line_of(Panel panel, const std::vector<std::string>& cells,
                    const std::vector<size_t>& widths, size_t columns) {
    std::string text;
    for (size_t c = 0; c < cells.size(); ++c)
        text += (c > 0 ? " " : "") + padded(cells[c], widths[c], columns_of(panel)[c].right);
    text = cut(std::move(text), columns);
    text.erase(text.find_last_not_of(' ') + 1);
    return text;
}

std::vector<std::string> titles(const View& view, Panel panel) {
    std::vector<std::string> all;
    for (const Column& column : columns_of(panel)) all.emplace_back(column.title);
    const size_t by = std::min(view.sort[at(panel)], all.size() - 1);
    all[by] += view.down[at(panel)] ? "-" : "+";
    return all;
}

std::vector<double> prices_of(const Seen& seen) {
    std::vector<double> values;
    for (const Json& row : seen.prices) values.push_back(row.value("least", -1.0));
    return values;
}

std::string summary(const Seen& seen) {
    const Json& s = seen.status;
    const Json jobs = s.value("jobs", Json::object());
    size_t on = 0, busy = 0;
    for (const Json& n : seen.nodes) {
        const std::string state = field(n, "status");
        on += state == "busy" || state == "free";
        busy += state == "busy";
    }
    return "souk " + field(s, "hostname") + "  nodes " + std::to_string(seen.nodes.size()) + ": " +
           std::to_string(on) + " on, " + std::to_string(busy) +
           " busy  jobs: " + field(jobs, "run") + " run, " + field(jobs, "wait") + " wait, " +
           field(jobs, "suspend") + " frozen  " + field(s, "solver");
}

std::string price_line(const Seen& seen, const View& view, size_t columns) {
    const auto values = prices_of(seen);
    const bool known = !values.empty() && values.back() >= 0;
    const std::string now = known ? field(seen.prices.back(), "least") : "-";
    const std::string text = "a place costs " + now + "  ";
    const size_t left = columns > text.size() ? columns - text.size() : 0;
    return text + sparkline(values, std::min<size_t>(left, 60), view.unicode);
}

std::string tabs(const Seen& seen, const View& view) {
    size_t moving = 0;
    for (const Json& j : seen.jobs) moving += is_moving(j);
    const size_t counts[] = {seen.nodes.size(), seen.jobs.size(), moving};
    const char* names[] = {"Nodes", "Jobs", "Moves"};
    std::string text;
    for (size_t i = 0; i < 3; ++i) {
        const std::string tab = std::string(names[i]) + " " + std::to_string(counts[i]);
        text += i == at(view.panel) ? "[" + tab + "] " : " " + tab + "  ";
    }
    if (!view.filter.empty()) text += " filter: " + view.filter;
    return text;
}

void write_value(std::vector<std::string>& lines, const std::string& key, const Json& value) {
    if (value.is_null() || (value.is_string() && value.get_ref<const std::string&>().empty()))
        return;
    const Json one = {{"v", value}};
    std::string name = key;
    std::string text = field(one, "v");
    if (value.is_object()) {
        for (const auto& [inner, each] : value.items()) write_value(lines, key + " " + inner, each);
        return;
    }
    const auto ends = [&](const char* end) { return value.is_number() && key.ends_with(end); };
    if (ends("_unix_s"))
        text = local_time(one, "v");
    else if (ends("_ms"))
        text = milliseconds(one, "v");
    else if (ends("_bytes"))
        text = bytes(one, "v");
    else if (ends("_bytes_per_s"))
        text = bytes(one, "v") + "/s";
    else if (ends("_mb"))
        text = megabytes(one, "v");
    else if (ends("_permille"))
        text = percent(one, "v");
    else if (ends("_s"))
        text = duration(one, "v");
    for (const char* unit : {"_unix_s", "_bytes_per_s", "_bytes", "_permille", "_ms", "_mb", "_s"})
        if (ends(unit)) {
            name.resize(name.size() - std::string_view(unit).size());
            break;
        }
    std::replace(name.begin(), name.end(), '_', ' ');
    lines.push_back(padded(name, 22, false) + " " + text);
}

const Json* find(const Seen& seen, const std::string& id) {
    for (const Json& n : seen.nodes)
        if (field(n, "node") == id) return &n;
    for (const Json& j : seen.jobs)
        if (field(j, "id") == id) return &j;
    return nullptr;
}

// All of one job or node, and of a node who is there.
std::vector<std::string> detail(const Seen& seen, const std::string& id) {
    const Json* one = find(seen, id);
    if (!one) return {id + " is not there any more"};
    std::vector<std::string> lines;
    for (const auto& [key, value] : one->items()) write_value(lines, key, value);
    if (!one->contains("node")) return lines;
    for (const Json& j : seen.jobs)
        if (field(j, "where") == id)
            lines.push_back(padded("job " + field(j, "id"), 22, false) + " " + field(j, "user") +
                            ", " + job_state(j) + ", pays " + field(j, "price"));
    return lines;
}

const std::vector<std::string>& help_lines() {
    static const std::vector<std::string> lines = {
        "F1 h ?     this help",
        "Tab        nodes, jobs, moves",
        "arrows     choose a row; Page Up, Page Down, Home, End",
        "Enter F5   all of a job or node, and back",
        "F4 \\       show only rows that hold a text",
        "F3 /       the same",
        "F6 > <     sort by the next or the previous column; I turns the order",
        "F7 m       move the chosen job to a node",
        "F8 f       freeze the chosen job",
        "F9 k       cancel the chosen job",
        "F10 q      leave",
    };
    return lines;
}

std::vector<Line> body(const Seen& seen, View& view, size_t rows, size_t columns) {
    std::vector<Line> lines;
    if (view.help || !view.open.empty()) {
        const auto texts = view.help ? help_lines() : detail(seen, view.open);
        for (size_t i = 0; i < std::min(rows, texts.size()); ++i)
            lines.push_back({cut(texts[i], columns), Line::Kind::plain});
        return lines;
    }
    const size_t p = at(view.panel);
    const auto all = rows_of(seen, view, view.panel);
    const size_t shown = rows > 0 ? rows - 1 : 0;  // a line is the title
    if (!all.empty()) view.selected[p] = std::min(view.selected[p], all.size() - 1);
    if (view.selected[p] < view.top[p]) view.top[p] = view.selected[p];
    if (shown > 0 && view.selected[p] >= view.top[p] + shown)
        view.top[p] = view.selected[p] - shown + 1;
    view.top[p] = std::min(view.top[p], all.size() > shown ? all.size() - shown : 0);
    const size_t end = std::min(all.size(), view.top[p] + shown);
    auto widths = widths_of(view.panel, all, view.top[p], end);
    const auto names = titles(view, view.panel);
    for (size_t c = 0; c < names.size(); ++c) widths[c] = std::max(widths[c], characters(names[c]));
    lines.push_back({line_of(view.panel, names, widths, columns), Line::Kind::title});
    for (size_t r = view.top[p]; r < end; ++r)
        lines.push_back({line_of(view.panel, all[r].cells, widths, columns),
                         r == view.selected[p] ? Line::Kind::selected : Line::Kind::plain});
    return lines;
}

void sort_by(View& view, int step) {
    const size_t p = at(view.panel), n = columns_of(view.panel).size();
    view.sort[p] = (view.sort[p] + n + static_cast<size_t>(step + static_cast<int>(n))) % n;
}

}  // namespace

std::string sparkline(const std::vector<double>& values, size_t width, bool unicode) {
    static const char* const blocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    constexpr std::string_view plain = ".:-=+*#@";
    const size_t from = values.size() > width ? values.size() - width : 0;
    double most = 0;
    for (size_t i = from; i < values.size(); ++i) most = std::max(most, values[i]);
    std::string text;
    for (size_t i = from; i < values.size(); ++i) {
        if (values[i] < 0) {
            text += ' ';
            continue;
        }
        const double part = most > 0 ? values[i] / most : 0;
        const size_t level = std::min<size_t>(7, static_cast<size_t>(part * 7.999));
        text += unicode ? std::string(blocks[level]) : std::string(1, plain[level]);
    }
    return text;
}

std::vector<Line> screen(const Seen& seen, View& view, size_t rows, size_t columns) {
    std::vector<Line> lines = {{cut(summary(seen), columns), Line::Kind::head},
                               {cut(price_line(seen, view, columns), columns), Line::Kind::plain},
                               {cut(tabs(seen, view), columns), Line::Kind::head}};
    const size_t fixed = lines.size() + 1;
    for (Line& line : body(seen, view, rows > fixed ? rows - fixed : 0, columns))
        lines.push_back(std::move(line));
    lines.resize(std::max(rows, fixed) - 1);
    const std::string last = !view.question.empty()  ? view.question
                             : !seen.trouble.empty() ? seen.trouble
                             : !view.said.empty()
                                 ? view.said
                                 : "F1Help F4Filter F5Open F6Sort F7Move F8Freeze F9Cancel F10Quit";
    lines.push_back({cut(last, columns), Line::Kind::key});
    return lines;
}

std::string once(const Seen& seen, const View& view) {
    std::string text = summary(seen) + "\n" + price_line(seen, view, 80);
    for (const Panel panel : {Panel::nodes, Panel::jobs, Panel::moves}) {
        const auto rows = rows_of(seen, view, panel);
        if (rows.empty() && panel == Panel::moves) continue;
        auto widths = widths_of(panel, rows, 0, rows.size());
        std::vector<std::string> names;
        for (const Column& column : columns_of(panel)) names.emplace_back(column.title);
        text += "\n\n" + line_of(panel, names, widths, SIZE_MAX - 1);
        for (const Row& row : rows) text += "\n" + line_of(panel, row.cells, widths, SIZE_MAX - 1);
    }
    return text;
}

std::string chosen(const Seen& seen, const View& view) {
    if (!view.open.empty()) return view.open;
    const auto rows = rows_of(seen, view, view.panel);
    const size_t selected = view.selected[at(view.panel)];
    return selected < rows.size() ? field(*rows[selected].of, id_key(view.panel)) : "";
}

void press(const std::string& key, const Seen& seen, View& view) {
    constexpr size_t page = 10;
    size_t& row = view.selected[at(view.panel)];
    const size_t n = rows_of(seen, view, view.panel).size();
    if (key == "h" || key == "?") {
        view.help = !view.help;
    } else if (key == "escape") {
        view.help = false;
        view.open.clear();
    } else if (key == "tab" || key == "right") {
        view.panel = static_cast<Panel>((at(view.panel) + 1) % 3);
        view.open.clear();
    } else if (key == "left") {
        view.panel = static_cast<Panel>((at(view.panel) + 2) % 3);
        view.open.clear();
    } else if (key == "enter") {
        view.open = view.open.empty() ? chosen(seen, view) : "";
    } else if (key == ">") {
        sort_by(view, 1);
    } else if (key == "<") {
        sort_by(view, -1);
    } else if (key == "I") {
        view.down[at(view.panel)] = !view.down[at(view.panel)];
    } else if (key == "up") {
        row -= row > 0;
    } else if (key == "page_up") {
        row -= std::min(row, page);
    } else if (key == "home") {
        row = 0;
    } else if (key == "down") {
        row += row + 1 < n;
    } else if (key == "page_down") {
        row = std::min(row + page, n > 0 ? n - 1 : 0);
    } else if (key == "end") {
        row = n > 0 ? n - 1 : 0;
    }
}

}  // namespace souk::tools::mmon
