// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/souk-web/server.hpp"

#include <ctime>

#include "kernel/base/ids.hpp"
#include "kernel/base/text.hpp"
#include "tools/common/job_rows.hpp"
#include "tools/souk-web/answers.hpp"
#include "tools/souk-web/guard.hpp"
#include "tools/souk-web/http.hpp"
#include "tools/souk-web/orders.hpp"

namespace souk::tools::web {
namespace {

using httplib::Request;
using httplib::Response;
using Handled = httplib::Server::HandlerResponse;

constexpr size_t form_bytes_max = 4'096;
constexpr Nanos keep_alive = Nanos::from_s(15);  // of a silent stream of events

// These headers allow nothing but our own files, no script in a page, and no frame of another site.
const httplib::Headers& headers() {
    static const httplib::Headers all = {
        {"Content-Security-Policy",
         "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
         "img-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"},
        {"X-Content-Type-Options", "nosniff"},
        // Other sites are told no address; a form to this server brings its Origin.
        {"Referrer-Policy", "same-origin"},
        {"Cross-Origin-Opener-Policy", "same-origin"},
        {"Cross-Origin-Resource-Policy", "same-origin"}};
    return all;
}

void send_text(Response& r, int status, const std::string& text) {
    r.status = status;
    r.set_content(text + "\n", "text/plain; charset=utf-8");
}

class Pages : public Server {
  public:
    Pages(const Options& options, Feed& feed) : options_(options), feed_(feed) {}

    Status begin() {
        http_.set_default_headers(headers());
        http_.set_tcp_nodelay(true);
        http_.set_payload_max_length(options_.actions ? form_bytes_max : 0);
        http_.set_pre_routing_handler(
            [this](const Request& q, Response& r) { return look_at(q, r); });
        add_files();
        add_pages();
        http_.Get("/events", [this](const Request&, Response& r) { events(r); });
        http_.set_error_handler([](const Request& q, Response& r) {
            if (r.body.empty() && q.method != "HEAD")
                send_text(r, r.status, "there is no such page here; the board is at /");
        });
        http_.set_exception_handler([](const Request&, Response& r, const std::exception_ptr&) {
            send_text(r, 500, "souk-web could not write this page");
        });
        const int port = options_.port;
        if (port == 0)
            port_ = static_cast<uint16_t>(std::max(0, http_.bind_to_any_port(options_.address)));
        else if (http_.bind_to_port(options_.address, port))
            port_ = options_.port;
        if (port_ == 0)
            return fail(CauseCode::not_possible,
                        "cannot listen on " + options_.address + " port " + std::to_string(port) +
                            ": the port is taken, or the address is none of this machine");
        guard_.emplace(options_, port_);
        if (!options_.actions) return {};
        logins_.emplace(port_);
        TRY_ASSIGN(Orders orders, Orders::open(feed_, *logins_, *guard_));
        orders_.emplace(std::move(orders));
        add_orders();
        return {};
    }
    uint16_t port() const override { return port_; }
    void run() override { http_.listen_after_bind(); }
    void stop() override { http_.stop(); }

  private:
    // Decides before any page whether this request is one of those that are answered.
    Handled look_at(const Request& q, Response& r) const {
        const bool shows = q.method == "GET" || q.method == "HEAD";
        // The connection is closed after such a request, because the body of a refused one is not
        // read.
        if (!shows) r.set_header("Connection", "close");
        if (!shows && !(options_.actions && q.method == "POST")) {
            r.set_header("Allow", options_.actions ? "GET, HEAD, POST" : "GET, HEAD");
            send_text(r, 405, "souk-web only shows: it takes GET and HEAD");
        } else if (q.get_header_value_count("Host") != 1 ||
                   !guard_->knows_host(q.get_header_value("Host"))) {
            send_text(r, 421, "souk-web is not called that way here; its --host NAME adds a name");
        } else if (const bool open = q.path == "/style.css" || q.path == "/icon.svg";
                   !open && shows && q.has_param("key") &&
                   guard_->is_key(q.get_param_value("key"))) {
            r.set_header("Set-Cookie", guard_->cookie());
            r.set_header("Cache-Control", "no-store");
            r.set_redirect(q.path);
        } else if (!open && !guard_->lets_in(q.get_header_value("Cookie"))) {
            send_text(r, 403, "this needs the link with a key that souk-web printed at its start");
        } else {
            return Handled::Unhandled;
        }
        return Handled::Handled;
    }

    void add_files() {
        const auto file = [this](const char* path, std::string_view text, const char* type) {
            http_.Get(path, [text, type](const Request&, Response& r) {
                r.set_header("Cache-Control", "max-age=300");
                r.set_content(text.data(), text.size(), type);
            });
        };
        file("/style\\.css", style_css, "text/css; charset=utf-8");
        file("/page\\.js", page_js, "text/javascript; charset=utf-8");
        file("/icon\\.svg", icon_svg, "image/svg+xml");
    }

    void add_pages() {
        for (const AnswerRoute& route : routes()) {
            http_.Get(route.pattern, [this, &route](const Request& q, Response& r) {
                Query query;
                for (const auto& [name, value] : q.params) query.emplace(name, value);
                if (q.matches.size() > 1) query["id"] = q.matches[1].str();
                Asker asker = asker_of(q);
                const PageAnswer page = route.answer(asker, query);
                reply(q, r, route.place, page, asker);
            });
        }
    }

    // Returns an Asker that asks the market in the name of the visitor.
    Asker asker_of(const Request& q) {
        if (!logins_) return {feed_, nullptr, std::nullopt};
        return {feed_, &*logins_, logins_->of(q.get_header_value("Cookie"))};
    }

    void add_orders() {
        http_.Get("/login", [this](const Request& q, Response& r) {
            Asker asker = asker_of(q);
            reply(q, r, "/login", orders_->login_page(), asker, true);
        });
        http_.Post("/login", [this](const Request& q, Response& r) {
            Asker asker(feed_, &*logins_, std::nullopt);
            lead(q, r, orders_->log_in(sent(q)), asker);
        });
        http_.Post("/logout", [this](const Request& q, Response& r) {
            Asker asker = asker_of(q);
            lead(q, r, orders_->log_out(asker, sent(q)), asker);
        });
        constexpr const char* order = "/job/([^/]{1,64})/([a-z]{1,16})";
        http_.Get(order, [this](const Request& q, Response& r) {
            Asker asker = asker_of(q);
            const PageAnswer page =
                orders_->question(asker, q.matches[1].str(), q.matches[2].str());
            reply(q, r, "/jobs", page, asker, true);
        });
        http_.Post(order, [this](const Request& q, Response& r) {
            Asker asker = asker_of(q);
            lead(q, r, orders_->give(asker, sent(q), q.matches[1].str(), q.matches[2].str()),
                 asker);
        });
    }

    static Sent sent(const Request& q) {
        Sent all{q.path,
                 q.get_header_value("Host"),
                 q.get_header_value("Origin"),
                 q.get_header_value("Sec-Fetch-Site"),
                 {}};
        for (const auto& [name, value] : q.params) all.fields.emplace(name, value);
        return all;
    }

    // Leads the browser, after an order, to the page that shows what became of it, or why it was
    // not given.
    void lead(const Request& q, Response& r, const OrderAnswer& answer, Asker& asker) {
        if (!answer.cookie.empty()) r.set_header("Set-Cookie", answer.cookie);
        if (answer.go_to.empty()) return reply(q, r, "", answer.page, asker, true);
        r.set_header("Cache-Control", "no-store");
        r.set_redirect(answer.go_to, 303);
    }

    void reply(const Request& q, Response& r, const char* place, const PageAnswer& page,
               const Asker& asker, bool still = false) {
        r.status = page.status;
        if (page.status == 503) r.set_header("Retry-After", "2");
        r.set_header("Cache-Control", "no-store");
        const bool part = q.get_header_value("X-Souk-Part") == "main";
        r.set_content(
            part ? page.main.str()
                 : document(page.title, market_name(feed_), place, page.main, asker.visitor(),
                            still, zone_of(static_cast<double>(::time(nullptr)))),
            "text/html; charset=utf-8");
    }

    // A tick whenever there may be something new. It ends when its watcher or the server does.
    void events(Response& r) {
        if (!feed_.join(watchers_max)) {
            r.set_header("Retry-After", "30");
            return send_text(r, 503, "as many watch already as souk-web serves");
        }
        r.set_header("Cache-Control", "no-store");
        auto seen = std::make_shared<uint64_t>(0);
        r.set_chunked_content_provider(
            "text/event-stream",
            [this, seen](size_t, httplib::DataSink& sink) {
                const auto tick = feed_.wait(*seen, keep_alive);
                if (feed_.stopped() || !sink.is_writable()) return false;
                std::string text = ": nothing new\n\n";
                if (tick) {
                    *seen = tick->number;
                    text = tick->trouble.empty()
                               ? "event: tick\ndata: " + std::to_string(tick->number) + "\n\n"
                               : "event: trouble\ndata: " + blank_controls(tick->trouble) + "\n\n";
                }
                return sink.write(text.data(), text.size());
            },
            [this](bool) { feed_.leave(); });
    }

    const Options& options_;
    Feed& feed_;
    Http http_;
    std::optional<Guard> guard_;
    std::optional<Logins> logins_;  // with these: --actions
    std::optional<Orders> orders_;
    uint16_t port_ = 0;
};

}  // namespace

Result<std::unique_ptr<Server>> Server::listen(const Options& options, Feed& feed) {
    auto pages = std::make_unique<Pages>(options, feed);
    TRY(pages->begin());
    return pages;
}

}  // namespace souk::tools::web
