// bin/quire of a package: starts lib/quire/quire beside it. The program needs a C library that is
// not older than the one it was built with. Where the machine has such a library, the program is
// started as any other one, so that its name services, its locales and its security updates are the
// machine's. Elsewhere (an older distribution, or one with another C library) the package's own
// copy runs it. QUIRE_GLIBC=host or package decides by hand.
//
// This file is linked statically and uses nothing of the machine but its kernel.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace {

// Where x86-64 programs have their loader, by the ABI.
constexpr const char* kHostLoader = "/lib64/ld-linux-x86-64.so.2";
// Not ld-linux-x86-64.so.2: `ps` and `top` show the name of the file that runs.
constexpr const char* kPackagedLoader = "/lib/quire/glibc/quire";
constexpr size_t kMaxLoader = 8 << 20;  // bytes; loaders have 0.2 million

std::string read_file(const char* path) {
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  std::string text;
  if (file < 0) return text;
  char buffer[1 << 16];
  for (ssize_t got = 0; text.size() < kMaxLoader;) {
    got = read(file, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    text.append(buffer, static_cast<size_t>(got));
  }
  close(file);
  return text;
}

// 36 for glibc 2.36; 0 for a release before 2.33, whose loader does not tell, for another C
// library, and for none.
int glibc_release(const char* loader) {
  constexpr std::string_view kMark = "release version 2.";
  const std::string text = read_file(loader);
  const size_t found = text.find(kMark);
  return found == std::string::npos ? 0 : std::atoi(text.c_str() + found + kMark.size());
}

bool use_host_glibc(const std::string& root) {
  const char* chosen = std::getenv("QUIRE_GLIBC");
  if (chosen == nullptr) {
    const int packaged = glibc_release((root + kPackagedLoader).c_str());
    return packaged > 0 && glibc_release(kHostLoader) >= packaged;
  }
  const std::string_view name = chosen;
  if (name != "host" && name != "package") {
    std::fprintf(stderr, "quire: QUIRE_GLIBC is '%s'; it may be host or package\n", chosen);
    std::exit(1);
  }
  unsetenv("QUIRE_GLIBC");  // no flag of the program's
  return name == "host";
}

// The folder above bin, through any links.
std::string package_root() {
  std::string path(4096, '\0');
  const ssize_t length = readlink("/proc/self/exe", path.data(), path.size());
  if (length <= 0 || static_cast<size_t>(length) == path.size()) {
    std::fprintf(stderr, "quire: cannot read /proc/self/exe: %s\n", std::strerror(errno));
    std::exit(1);
  }
  path.resize(static_cast<size_t>(length));
  for (int i = 0; i < 2; ++i)
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  return path;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string root = package_root();
  const std::string program = root + "/lib/quire/quire";
  if (use_host_glibc(root)) {
    execv(program.c_str(), argv);
  } else {
    const std::string loader = root + kPackagedLoader;
    // The option takes the place of LD_LIBRARY_PATH, by which containers may name the folder of a
    // GPU's driver.
    const char* further = std::getenv("LD_LIBRARY_PATH");
    std::string libraries = root + "/lib/quire/glibc";
    if (further != nullptr && *further != '\0') libraries.append(":").append(further);
    std::vector<const char*> command = {
        loader.c_str(),   "--argv0",         argc > 0 ? argv[0] : "quire",
        "--library-path", libraries.c_str(), program.c_str()};
    for (int i = 1; i < argc; ++i) command.push_back(argv[i]);
    command.push_back(nullptr);
    execv(loader.c_str(), const_cast<char* const*>(command.data()));
  }
  std::fprintf(stderr, "quire: cannot run %s: %s\n", program.c_str(), std::strerror(errno));
  return 1;
}
