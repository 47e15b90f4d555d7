// Shows the pages that match what is typed, from an index that is included as a script: it needs
// neither a server nor a worker. `base_url` is set by MkDocs in each page.
(function () {
  function load(name, then) {
    var script = document.createElement("script");
    script.src = base_url + "/search/" + name;
    script.onload = then;
    document.head.appendChild(script);
  }

  function element(name, text) {
    var made = document.createElement(name);
    made.textContent = text;
    return made;
  }

  function excerpt(text, query) {
    var words = query.toLowerCase().split(/\s+/);
    var found = text.toLowerCase().indexOf(words[0]);
    var from = Math.max(0, found - 80);
    return (from ? "… " : "") + text.substring(from, from + 240) + " …";
  }

  function show(results, documents, query, into) {
    into.replaceChildren();
    if (!results.length) {
      into.appendChild(element("p", "No page has these words."));
    }
    results.slice(0, 30).forEach(function (result) {
      var found = documents[result.ref];
      var article = element("article", "");
      var link = element("a", found.title);
      link.href = base_url + "/" + found.location;
      article.appendChild(element("h3", "")).appendChild(link);
      article.appendChild(element("p", excerpt(found.text, query)));
      into.appendChild(article);
    });
  }

  function start() {
    var input = document.getElementById("mkdocs-search-query");
    var into = document.getElementById("mkdocs-search-results");
    if (!input || !into) {
      return;
    }
    var documents = {};
    var index = lunr(function () {
      this.field("title", { boost: 10 });
      this.field("text");
      this.ref("location");
      searchIndex.docs.forEach(function (each) {
        documents[each.location] = each;
        this.add(each);
      }, this);
    });
    function search() {
      var words = input.value.replace(/[:~^*+-]/g, " ").trim();
      var results = words.length > 1 ? index.search(words) : [];
      show(results, documents, words, into);
    }
    input.value = new URLSearchParams(window.location.search).get("q") || "";
    input.addEventListener("keyup", search);
    search();
  }

  load("lunr.js", function () {
    load("search_index.js", start);
  });
})();
