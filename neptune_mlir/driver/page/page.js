// Lines that go together light up together; a tap brings the other one into view in its own box.
(function () {
  function both(line) {
    var found = [line];
    (line.dataset.to || "").split(" ").forEach(function (id) {
      var other = document.getElementById(id);
      if (other) found.push(other);
    });
    return found;
  }
  function light(line, on) {
    both(line).forEach(function (one) { one.classList.toggle("on", on); });
  }
  document.querySelectorAll("a.ln").forEach(function (line) {
    ["mouseenter", "focus"].forEach(function (e) { line.addEventListener(e, function () { light(line, true); }); });
    ["mouseleave", "blur"].forEach(function (e) { line.addEventListener(e, function () { light(line, false); }); });
    line.addEventListener("click", function (event) {
      var other = both(line)[1];
      if (!other) return;
      event.preventDefault();
      var box = other.parentElement;
      box.scrollTo({ top: other.offsetTop - box.offsetTop - box.clientHeight / 3, behavior: "smooth" });
      if (other.getBoundingClientRect().top > innerHeight || other.getBoundingClientRect().bottom < 0)
        other.scrollIntoView({ block: "center", behavior: "smooth" });
    });
  });
})();
