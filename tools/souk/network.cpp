// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/souk/network.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "kernel/base/ipv4.hpp"
#include "kernel/sys/net/netlink.hpp"

namespace souk {
namespace {

constexpr const char* names_dir = "/run/netns";

// A fresh namespace, made by a child that ends at once.
Result<Netns> create_namespace(const std::string& name) {
    TRY_ASSIGN(Pipe ready, make_pipe());
    TRY_ASSIGN(Pipe done, make_pipe());
    const pid_t child = ::fork();
    if (child < 0) return fail_errno("fork", errno);
    if (child == 0) {
        char code = ::unshare(CLONE_NEWNET) == 0 ? 0 : static_cast<char>(errno);
        done.write_end.reset();
        (void)!::write(ready.write_end.get(), &code, 1);
        (void)!::read(done.read_end.get(), &code, 1);  // until the parent has opened the namespace
        ::_exit(0);
    }
    ready.write_end.reset();
    char code = static_cast<char>(EIO);
    const ssize_t n = ::read(ready.read_end.get(), &code, 1);
    auto fd = n == 1 && code == 0
                  ? open_at(AT_FDCWD, "/proc/" + std::to_string(child) + "/ns/net", O_RDONLY)
                  : Result<Fd>(fail_errno("create network namespace " + name, code));
    done.write_end.reset();
    ::waitpid(child, nullptr, 0);
    if (!fd) return tl::unexpected(fd.error());
    ::mkdir(names_dir, 0755);
    const std::string link = std::string(names_dir) + "/" + name;
    const std::string target =
        "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(fd->get());
    if (::symlink(target.c_str(), link.c_str()) != 0)
        return fail_errno("create " + link + " (left over? souk down removes it)", errno);
    return Netns{name, std::move(*fd)};
}

// Feeds `ip -batch -` inside a namespace.
Status ip_batch(const Netns& ns, const std::string& commands) {
    TRY_ASSIGN(Pipe input, make_pipe());
    TRY_ASSIGN(Pipe errors, make_pipe());
    const pid_t child = ::fork();
    if (child < 0) return fail_errno("fork", errno);
    if (child == 0) {
        if (::setns(ns.fd.get(), CLONE_NEWNET) != 0) ::_exit(126);
        ::dup2(input.read_end.get(), STDIN_FILENO);
        ::dup2(errors.write_end.get(), STDERR_FILENO);
        ::execlp("ip", "ip", "-batch", "-", static_cast<char*>(nullptr));
        ::_exit(127);
    }
    input.read_end.reset();
    errors.write_end.reset();
    const ssize_t sent = ::write(input.write_end.get(), commands.data(), commands.size());
    input.write_end.reset();
    std::string text(512, '\0');
    const ssize_t n = ::read(errors.read_end.get(), text.data(), text.size());
    text.resize(n > 0 ? static_cast<size_t>(n) : 0);
    int status = 0;
    ::waitpid(child, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0 &&
        sent == static_cast<ssize_t>(commands.size()))
        return {};
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
        return fail("`ip` is missing: apt-get install iproute2");
    return fail("ip in namespace " + ns.name + ": " + text.substr(0, text.find('\n')));
}

// Between nodes and jobs.
Status forward(const Netns& ns) {
    return in_net_namespace(
        ns.fd.get(), [] { return write_file(AT_FDCWD, "/proc/sys/net/ipv4/ip_forward", "1"); });
}

}  // namespace

std::string job_gateway() { return "10.79.64.1"; }
std::string job_addresses(size_t index) {
    constexpr uint32_t each = 64;  // the first share is the gateway's
    return Ipv4{(10u << 24 | 79u << 16 | 64u << 8) + static_cast<uint32_t>(index + 1) * each}
               .text() +
           "/26";
}
std::string fabric_address() { return "10.79.0.1"; }
std::string node_address(size_t index) { return "10.79.0." + std::to_string(index + 11); }

Result<Network> create_network(const std::string& tag, const std::vector<std::string>& node_names) {
    Network net;
    std::vector<std::string> made;
    const auto build = [&]() -> Status {
        made.push_back(tag + "-fabric");
        TRY_ASSIGN(net.fabric, create_namespace(made.back()));
        TRY(ip_batch(net.fabric, "link set lo up\nlink add br0 type bridge\naddr add " +
                                     fabric_address() + "/24 dev br0\naddr add " + job_gateway() +
                                     "/18 dev br0\nlink set br0 up\n"));
        TRY(forward(net.fabric));
        for (size_t i = 0; i < node_names.size(); ++i) {
            made.push_back(tag + "-" + node_names[i]);
            TRY_ASSIGN(Netns node, create_namespace(made.back()));
            net.nodes.push_back(std::move(node));
            const std::string port = "p" + std::to_string(i);
            std::string wire =
                "link add " + port + " type veth peer name eth0 netns " + net.nodes[i].name;
            wire += "\nlink set " + port + " master br0\nlink set " + port + " up\n";
            TRY(ip_batch(net.fabric, wire));
            const std::string bridge = job_bridge;
            char hardware[40];  // given, or it would change with the bridge's ports
            std::snprintf(hardware, sizeof hardware, "02:53:00:00:00:%02zx", i + 1);
            TRY(ip_batch(net.nodes[i],
                         "link set lo up\nlink add " + bridge + " address " + hardware +
                             " type bridge\nlink set eth0 master " + bridge + " up\naddr add " +
                             node_address(i) + "/24 dev " + bridge + "\nlink set " + bridge +
                             " up\nroute add default via " + fabric_address() + "\n"));
        }
        return {};
    };
    if (auto built = build(); !built) {
        remove_network_names(made);
        return tl::unexpected(built.error());
    }
    return net;
}

void remove_network_names(const std::vector<std::string>& names) {
    for (const std::string& name : names) ::unlink((std::string(names_dir) + "/" + name).c_str());
    ::rmdir(names_dir);  // only if it is empty now
}

Status enter(const Netns& ns) {
    if (::setns(ns.fd.get(), CLONE_NEWNET) != 0)
        return fail_errno("enter network namespace " + ns.name, errno);
    return {};
}

}  // namespace souk
