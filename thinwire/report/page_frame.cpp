// SPDX-License-Identifier: Apache-2.0
#include "thinwire/report/page_frame.h"

#include "thinwire/report/page_assets.h"

namespace thinwire {
namespace {

// JSON inside a script element: no '<', so that no text in it can end the element.
std::string script_json(const Json& json) {
  std::string out;
  for (const char c : json.dump(-1, ' ', false, Json::error_handler_t::replace))
    out += c == '<' ? std::string("\\u003c") : std::string(1, c);
  return out;
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string html_page(std::string_view title, std::string_view body, const Json* data) {
  std::string out =
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'; "
      "script-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n<link rel=\"icon\" "
      "href=\"data:,\">\n<title>";
  out.append(title).append("</title>\n<style>\n");
  out.append(kPageCss).append("</style>\n</head>\n<body>\n").append(body);
  if (data) {
    out += "<script type=\"application/json\" id=\"data\">" + script_json(*data) +
           "</script>\n<script>\n";
    out.append(kChartJs).append("\n</script>\n<script>\n").append(kPageJs).append("</script>\n");
  }
  return out + "</body>\n</html>\n";
}

}  // namespace thinwire
