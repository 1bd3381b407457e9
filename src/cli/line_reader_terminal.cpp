// Line editing by libedit: Emacs keys, Ctrl-R, a history. It reads through read_character, so that
// a signal ends a line, and in UTF-8.
#include <histedit.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cwchar>

#include "cli/line_reader.h"

namespace quire::cli {
namespace {

constexpr int kHistoryLines = 1000;

volatile std::sig_atomic_t g_interrupted = 0;
volatile std::sig_atomic_t g_resized = 0;

// What is typed is UTF-8, whatever the language.
void use_utf8() {
  if (std::setlocale(LC_CTYPE, "") != nullptr && MB_CUR_MAX > 1) return;
  std::setlocale(LC_CTYPE, "C.UTF-8");
}

class TerminalReader : public LineReader {
 public:
  TerminalReader(FILE* output, std::string history_file);
  ~TerminalReader() override;

  Line read(const std::string& prompt) override;
  void remember(const std::string& line) override;

 private:
  static char* prompt_of(EditLine* editor);
  static void draw_again(EditLine* editor);
  static int read_character(EditLine* editor, wchar_t* out);

  const std::string history_file_;
  EditLine* editor_;
  History* history_;
  std::string prompt_;
};

TerminalReader::TerminalReader(FILE* output, std::string history_file)
    : history_file_(std::move(history_file)) {
  use_utf8();
  editor_ = el_init("quire", stdin, output, output);
  history_ = history_init();
  HistEvent event;
  history(history_, &event, H_SETSIZE, kHistoryLines);
  history(history_, &event, H_SETUNIQUE, 1);
  if (!history_file_.empty()) history(history_, &event, H_LOAD, history_file_.c_str());
  el_set(editor_, EL_CLIENTDATA, this);
  el_set(editor_, EL_PROMPT, &TerminalReader::prompt_of);
  el_set(editor_, EL_EDITOR, "emacs");
  el_set(editor_, EL_HIST, history, history_);
  el_set(editor_, EL_SIGNAL, 0);
  el_set(editor_, EL_GETCFN, &TerminalReader::read_character);
  el_set(editor_, EL_BIND, "^R", "em-inc-search-prev", nullptr);
  el_set(editor_, EL_BIND, "\\e[3~", "ed-delete-next-char", nullptr);
  el_set(editor_, EL_BIND, "\\e[1;5C", "em-next-word", nullptr);
  el_set(editor_, EL_BIND, "\\e[1;5D", "ed-prev-word", nullptr);
  el_source(editor_, nullptr);  // ~/.editrc
}

TerminalReader::~TerminalReader() {
  history_end(history_);
  el_end(editor_);
}

char* TerminalReader::prompt_of(EditLine* editor) {
  void* self = nullptr;
  el_get(editor, EL_CLIENTDATA, &self);
  return static_cast<TerminalReader*>(self)->prompt_.data();
}

// After a change of the terminal's size. libedit draws as if the cursor stood where the prompt
// begins, so it is put there: on a line that has left its first row the rows above stay.
void TerminalReader::draw_again(EditLine* editor) {
  g_resized = 0;
  FILE* output = nullptr;
  char* clear_below = nullptr;
  el_get(editor, EL_GETFP, 1, &output);
  el_get(editor, EL_GETTC, "cd", &clear_below);
  std::fprintf(output, "\r%s", clear_below != nullptr ? clear_below : "\n");
  el_resize(editor);
  el_set(editor, EL_REFRESH);
}

int TerminalReader::read_character(EditLine* editor, wchar_t* out) {
  std::mbstate_t state{};
  for (;;) {
    pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    const int ready = ::poll(&input, 1, -1);
    if (g_interrupted != 0) return -1;
    if (g_resized != 0) draw_again(editor);
    if (ready <= 0) continue;
    char byte = 0;
    const ssize_t n = ::read(STDIN_FILENO, &byte, 1);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return 0;
    const size_t length = std::mbrtowc(out, &byte, 1, &state);
    if (length == static_cast<size_t>(-2)) continue;  // the beginning of a character
    if (length != static_cast<size_t>(-1)) return 1;
    state = {};  // no UTF-8: left out
  }
}

LineReader::Line TerminalReader::read(const std::string& prompt) {
  prompt_ = prompt;
  g_interrupted = 0;
  struct sigaction on_interrupt{}, on_resize{}, interrupt_before{}, resize_before{};
  on_interrupt.sa_handler = [](int) { g_interrupted = 1; };
  on_resize.sa_handler = [](int) { g_resized = 1; };
  sigaction(SIGINT, &on_interrupt, &interrupt_before);
  sigaction(SIGWINCH, &on_resize, &resize_before);
  int count = 0;
  const char* text = el_gets(editor_, &count);
  sigaction(SIGINT, &interrupt_before, nullptr);
  sigaction(SIGWINCH, &resize_before, nullptr);
  if (g_interrupted != 0) return {Kind::kInterrupt, ""};
  if (text == nullptr || count <= 0) return {Kind::kEnd, ""};
  std::string line(text, static_cast<size_t>(count));
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.pop_back();
  return {Kind::kLine, std::move(line)};
}

void TerminalReader::remember(const std::string& line) {
  HistEvent event;
  history(history_, &event, H_ENTER, line.c_str());
  if (history_file_.empty()) return;
  // Nobody else is to read it.
  const mode_t before = ::umask(077);
  history(history_, &event, H_SAVE, history_file_.c_str());
  ::umask(before);
}

}  // namespace

std::unique_ptr<LineReader> make_terminal_reader(FILE* output, const std::string& history_file) {
  return std::make_unique<TerminalReader>(output, history_file);
}

}  // namespace quire::cli
