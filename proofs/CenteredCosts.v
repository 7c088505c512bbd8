(* Rule "residuals". Centered costs: what one record can do to a residual, exactly, and what follows for a
   move of a records. These k_d are smaller than the squared lengths of the tables. *)
From mathcomp Require Import all_ssreflect fingroup perm ssralg ssrnum ssrint zify.
Require Import Datasets Features Exchange Tables ExchangeNorms Residuals Pairing.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.Theory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Product.
(* Cells have a level of every feature. Levels of feature f with the same family are siblings: all
   levels of a flat feature, the counties of one state. Features may have any numbers of levels. *)
Variables (K : realFieldType) (F V S : finType) (family : F -> V -> S).
Notation cell := {ffun F -> V}.
Implicit Types (f g : F) (v w : V) (x y c : cell) (u : F -> V -> K).

(* How many siblings a level has, itself included. *)
Definition siblings f v : K := #|[set w | family f w == family f v]|%:R.

(* What a level adds to another one after the mean of the siblings was subtracted. *)
Definition kernel f v w : K := (v == w)%:R - (family f v == family f w)%:R / siblings f v.

(* Two cells are siblings along f if they have all else in common. *)
Definition along f c : {ffun F -> V + S} :=
  [ffun g => if g == f then inr (family f (c f)) else inl (c g)].

Definition with_level f c v : cell := [ffun g => if g == f then v else c g].

Definition product u c : K := \prod_g u g (c g).

Lemma siblings_pos f v : 0 < siblings f v.
Proof. by rewrite ltr0n; apply/card_gt0P; exists v; rewrite inE. Qed.

Lemma alongP f c c' : reflect ((forall g, g != f -> c' g = c g) /\ family f (c' f) = family f (c f))
  (along f c' == along f c).
Proof.
apply: (iffP eqP) => [e|[e1 e2]].
  split=> [g gf|]; first by move/ffunP/(_ g): e; rewrite !ffunE (negbTE gf) => -[].
  by move/ffunP/(_ f): e; rewrite !ffunE eqxx => -[].
apply/ffunP=> g; rewrite !ffunE; case: eqP => [_|/eqP gf]; first by rewrite e2.
by rewrite (e1 g gf).
Qed.

Lemma sum_along f c (T : cell -> K) :
  \sum_(c' | along f c' == along f c) T c' =
  \sum_(v | family f v == family f (c f)) T (with_level f c v).
Proof.
rewrite (reindex_onto (with_level f c) (fun c' : cell => c' f)) /=; last first.
  move=> c' /alongP[e _]; apply/ffunP=> g; rewrite ffunE.
  by case: eqP => [->//|/eqP gf]; rewrite e.
apply: eq_bigl => v; rewrite ffunE eqxx eqxx andbT.
apply/alongP/eqP => [[_]|e]; first by rewrite ffunE eqxx.
by split=> [g gf|]; rewrite ffunE ?(negbTE gf) ?eqxx.
Qed.

Lemma card_along f c : #|[set c' | along f c' == along f c]|%:R = siblings f (c f) :> K.
Proof.
have := sum_along f c (fun=> 1); rewrite !sumr_const => e.
rewrite /siblings -[LHS](_ : \sum_(c' | along f c' == along f c) 1 = _); last first.
  by rewrite sumr_const; congr (_ *+ _); apply: eq_card => c'; rewrite !inE.
by rewrite sumr_const e; congr (_ *+ _); apply: eq_card => v; rewrite !inE.
Qed.

(* Centering one level of a product changes one factor. *)
Definition center_level f (T : V -> K) v : K :=
  T v - (\sum_(w | family f w == family f v) T w) / siblings f v.

Lemma center_product u f c :
  center (along f) (product u) c =
  product (fun g => if g == f then center_level f (u f) else u g) c.
Proof.
rewrite /center /siblings_mean sum_along card_along /product.
have split_at u' v : \prod_g u' g (with_level f c v g) =
    u' f v * \prod_(g | g != f) u' g (c g).
  rewrite (bigD1 f) //= ffunE eqxx; congr (_ * _).
  by apply: eq_bigr => g gf; rewrite ffunE (negbTE gf).
have here u' : \prod_g u' g (c g) = u' f (c f) * \prod_(g | g != f) u' g (c g).
  by rewrite (bigD1 f).
rewrite (eq_bigr (fun v => u f v * \prod_(g | g != f) u g (c g))); last by move=> v _; apply: split_at.
pose u' g := if g == f then center_level f (u f) else u g.
rewrite -[RHS]/(\prod_g u' g (c g)) (here u) (here u') /u' eqxx -mulr_suml.
rewrite [in RHS](eq_bigr (fun g => u g (c g))); last by move=> g /negbTE->.
by rewrite /center_level mulrBl mulrAC.
Qed.

Lemma residual_product u (fs : seq F) : uniq fs ->
  residual [seq along f | f <- fs] (product u) =1
  product (fun g => if g \in fs then center_level g (u g) else u g).
Proof.
elim: fs => [|f fs IH] /=; first by move=> _ c.
move=> /andP[ffs ufs] c; rewrite (center_ext _ (IH ufs)) center_product /product.
apply: eq_bigr => g _; rewrite inE; case: eqP => [->|//].
by rewrite (negbTE ffs).
Qed.

Lemma one_cell x c : (x == c)%:R = product (fun g v => (x g == v)%:R) c.
Proof.
rewrite /product; case: eqP => [->|ne]; first by rewrite big1 // => g _; rewrite eqxx.
case: (pickP (fun g => x g != c g)) => [g gne|all].
  by rewrite (bigD1 g) //= (negbTE gne) mul0r.
by case: ne; apply/ffunP=> g; move/negbFE/eqP: (all g).
Qed.

Lemma center_one_level f v w : center_level f (fun w' => (v == w')%:R) w = kernel f v w.
Proof.
rewrite /center_level /kernel; congr (_ - _).
case: (eqVneq (family f v) (family f w)) => [e|ne] /=.
  rewrite (bigD1 v) ?e //= eqxx big1 ?addr0; last by move=> w' /andP[_ /negbTE]; rewrite eq_sym => ->.
  by rewrite /siblings e.
rewrite big1 ?mul0r // => w' /eqP e; case: eqP => // vw; by rewrite vw e eqxx in ne.
Qed.

(* Kernels are products of themselves: centering is a projection. *)
Lemma kernel_product f v w : \sum_z kernel f v z * kernel f w z = kernel f v w.
Proof.
have pick_level v' (T : V -> K) : \sum_z (v' == z)%:R * T z = T v'.
  rewrite (bigD1 v') //= eqxx mul1r big1 ?addr0 // => z; rewrite eq_sym => /negbTE->.
  by rewrite mul0r.
rewrite (eq_bigr (fun z => (v == z)%:R * kernel f w z
    - (family f v == family f z)%:R / siblings f v * kernel f w z)); last first.
  by move=> z _; rewrite {1}/kernel mulrBl.
rewrite sumrB pick_level.
have -> : \sum_z (family f v == family f z)%:R / siblings f v * kernel f w z = 0.
  rewrite (eq_bigr (fun z => (siblings f v)^-1 * ((family f z == family f v)%:R * kernel f w z))); last first.
    by move=> z _; rewrite eq_sym mulrAC mulrC.
  rewrite -mulr_sumr; apply/eqP; rewrite mulf_eq0; apply/orP; right; apply/eqP.
  rewrite (eq_bigr (fun z => (w == z)%:R * (family f z == family f v)%:R
      - (family f w == family f z)%:R * (family f z == family f v)%:R / siblings f w)); last first.
    by move=> z _; rewrite /kernel mulrBr mulrC; congr (_ - _); rewrite mulrA [X in X / _]mulrC.
  rewrite sumrB pick_level -mulr_suml.
  case: (eqVneq (family f w) (family f v)) => [e|ne].
    rewrite (eq_bigr (fun z => (family f z == family f w)%:R)); last first.
      by move=> z _; rewrite -e (eq_sym (family f w)); case: (_ == _); rewrite ?mulr1 ?mulr0.
    rewrite -natr_sum -[X in X / _](_ : siblings f w = _); last first.
      by rewrite /siblings -sum1_card big_mkcond; congr (_%:R); apply: eq_bigr => z _; rewrite inE; case: (_ == _).
    by rewrite divff ?subrr // gt_eqF // siblings_pos.
  rewrite big1 ?mul0r ?subrr // => z _.
  by case: (eqVneq (family f w) (family f z)) => [<-|_]; rewrite ?(negbTE ne) ?mulr0 ?mul0r.
rewrite subr0 /kernel eq_sym; congr (_ - _).
case: (eqVneq (family f w) (family f v)) => [e|ne]; first by rewrite /siblings e.
by rewrite !mul0r.
Qed.

Lemma kernel_sym f v w : kernel f v w = kernel f w v.
Proof.
rewrite /kernel eq_sym; congr (_ - _); rewrite eq_sym.
case: (eqVneq (family f w) (family f v)) => [e|_]; last by rewrite !mul0r.
by rewrite /siblings e.
Qed.

Lemma kernel_diagonal f v : kernel f v v = 1 - (siblings f v)^-1.
Proof. by rewrite /kernel !eqxx mul1r. Qed.

Lemma diagonal_bounds f v : 0 <= kernel f v v <= 1.
Proof.
have pos := siblings_pos f v.
have one : 1 <= siblings f v by rewrite ler1n -(ltr0n K).
rewrite kernel_diagonal subr_ge0 invf_le1 // one /=.
by rewrite ler_subl_addr ler_addl invr_ge0 ltW.
Qed.

(* Two levels have at most in common what each has with itself. *)
Lemma kernel_bound f v w : `|kernel f v w| <= kernel f v v.
Proof.
have /andP[d0 _] := diagonal_bounds f v.
case: (eqVneq v w) => [<-|vw]; first by rewrite ger0_norm.
rewrite {1}/kernel (negbTE vw) sub0r normrN.
case: (eqVneq (family f v) (family f w)) => [e|_]; last by rewrite mul0r normr0.
have pos := siblings_pos f v.
have two : 2%:R <= siblings f v.
  rewrite ler_nat; apply: leq_trans (_ : #|[set v; w]| <= _)%N; first by rewrite cards2 vw.
  by apply: subset_leq_card; apply/subsetP=> z; rewrite !inE => /orP[]/eqP->; rewrite ?e.
rewrite mul1r gtr0_norm ?invr_gt0 // kernel_diagonal ler_subr_addr -mulr2n -mulr_natl.
by rewrite ler_pdivr_mulr // mul1r.
Qed.

Lemma kernel_sum f v w : v != w -> kernel f v v + `|kernel f v w| <= 1.
Proof.
move=> vw; have pos := siblings_pos f v.
rewrite kernel_diagonal /kernel (negbTE vw) sub0r normrN.
rewrite -[X in _ <= X](subrK (siblings f v)^-1) ler_add2l.
case: (family f v == family f w); last by rewrite mul0r normr0 invr_ge0 ltW.
by rewrite mul1r gtr0_norm ?invr_gt0.
Qed.

Variable fs : seq F.
Hypothesis fs_uniq : uniq fs.

(* The residual is centered along the features of the table; all cells have the same level of others. *)
Definition families := [seq along f | f <- fs].

Definition shared f v w : K := if f \in fs then kernel f v w else (v == w)%:R.

Definition component x : cell -> K := residual families (fun c => (x == c)%:R).

Lemma component_product x : component x =1 product (fun g => shared g (x g)).
Proof.
move=> c; rewrite /component (residual_ext _ (one_cell x)) residual_product //.
apply: eq_bigr => g _; rewrite /shared; case: (g \in fs) => //.
exact: center_one_level.
Qed.

Lemma shared_product f v w : \sum_z shared f v z * shared f w z = shared f v w.
Proof.
rewrite /shared; case: (f \in fs); first exact: kernel_product.
rewrite (bigD1 v) //= eqxx mul1r big1 ?addr0 1?eq_sym // => z; rewrite eq_sym => /negbTE->.
by rewrite mul0r.
Qed.

Lemma component_inner x y :
  \sum_c component x c * component y c = \prod_f shared f (x f) (y f).
Proof.
rewrite (eq_bigr (fun c : cell => \prod_f (shared f (x f) (c f) * shared f (y f) (c f)))); last first.
  by move=> c _; rewrite !component_product /product -big_split.
rewrite -(bigA_distr_bigA (fun f z => shared f (x f) z * shared f (y f) z)).
by apply: eq_bigr => f _; apply: shared_product.
Qed.

(* CENTERED COST OF A SINGLE MOVE. The residual of a record that goes from cell x to cell y has exactly
   this squared length: products over the features of 1 - 1/n for a level with n siblings, less
   twice the product in which a feature that changes counts -1/n, or 0 if the levels are no
   siblings. *)
Theorem centered_single_move x y :
  squared_norm (residual families (fun c => (single_move x y c)%:~R)) =
  \prod_f shared f (x f) (x f) + \prod_f shared f (y f) (y f) - (\prod_f shared f (x f) (y f)) *+ 2.
Proof.
rewrite /squared_norm (eq_bigr (fun c => (component y c - component x c) ^+ 2)); last first.
  move=> c _; congr (_ ^+ 2); rewrite -residual_sub; apply: residual_ext => c'.
  by rewrite /single_move rmorphB /= -!pmulrn.
rewrite (eq_bigr (fun c => component x c * component x c + component y c * component y c
    - (component x c * component y c) *+ 2)); last first.
  by move=> c _; rewrite -!expr2 sqrrB [component y c * _]mulrC addrAC [component y c ^+ 2 + _]addrC.
by rewrite sumrB sumrMnl big_split /= !component_inner.
Qed.

Lemma shared_norm f v w : `|shared f v w| <= 1.
Proof.
rewrite /shared; case: (f \in fs).
  by apply: le_trans (kernel_bound f v w) _; case/andP: (diagonal_bounds f v).
by rewrite ger0_norm ?ler0n // lern1 leq_b1.
Qed.

Lemma product_bound (h : F -> K) f g : f != g -> (forall e, `|h e| <= 1) ->
  `|\prod_e h e| <= `|h f| * `|h g|.
Proof.
move=> fg h1; rewrite (bigD1 f) //= (bigD1 g) 1?eq_sym //= !normrM mulrA.
rewrite -[X in _ <= X]mulr1; apply: ler_wpmul2l; first by rewrite mulr_ge0.
rewrite normr_prod; suff /andP[] : 0 <= \prod_(e | (e != f) && (e != g)) `|h e| <= 1 by [].
apply: (big_ind (fun z => 0 <= z <= 1)) => [|z z' /andP[z0 z1] /andP[z0' z1']|e _].
- by rewrite ler01 lexx.
- by rewrite mulr_ge0 // mulr_ile1.
by rewrite normr_ge0 h1.
Qed.

(* CENTERED COSTS BELOW 2. If a residual has at least two features and no level has more than N siblings
   (itself included), a single record moves it by at most 2 (1 - 1/N) in squared length; it moves the
   table by 2. *)
Theorem centered_cost_below_two x y f g (N : nat) : f \in fs -> g \in fs -> f != g ->
  (forall e v, siblings e v <= N%:R :> K) ->
  squared_norm (residual families (fun c => (single_move x y c)%:~R)) <= (1 - N%:R^-1) *+ 2 :> K.
Proof.
move=> ff gf fg few; rewrite centered_single_move.
have top e v : kernel e v v <= 1 - N%:R^-1.
  rewrite kernel_diagonal ler_add2l ler_opp2 lef_pinv ?posrE ?siblings_pos //.
  exact: lt_le_trans (siblings_pos e v) (few e v).
have diag e v : e \in fs -> shared e v v = kernel e v v by rewrite /shared => ->.
have pos e v : 0 <= kernel e v v by case/andP: (diagonal_bounds e v).
have whole z e1 e2 : e1 \in fs -> e2 \in fs -> e1 != e2 ->
    \prod_e shared e (z e) (z e) <= kernel e1 (z e1) (z e1) * kernel e2 (z e2) (z e2).
  move=> i1 i2 ne; apply: le_trans (ler_norm _) _.
  apply: le_trans (product_bound ne (fun e => shared_norm e (z e) (z e))) _.
  by rewrite !diag // !ger0_norm.
case: (boolP (all (fun e => x e == y e) fs)) => [/allP same|/allPn[e1 i1 ne1]].
  have cross : 0 <= \prod_e shared e (x e) (y e).
    apply: prodr_ge0 => e _; rewrite /shared; case: ifP => [/same/eqP->|_]; [exact: pos|exact: ler0n].
  rewrite ler_subl_addr; apply: le_trans (_ : (1 - N%:R^-1) *+ 2 <= _); last first.
    by rewrite ler_addl mulrn_wge0.
  rewrite mulr2n; apply: ler_add; apply: le_trans (whole _ _ _ ff gf fg) _.
    by rewrite -[X in _ <= X]mul1r; apply: ler_pmul; rewrite ?pos ?top //; case/andP: (diagonal_bounds f (x f)).
  by rewrite -[X in _ <= X]mul1r; apply: ler_pmul; rewrite ?pos ?top //; case/andP: (diagonal_bounds f (y f)).
have [e2 i2 ne] : exists2 e2, e2 \in fs & e1 != e2.
  by case: (eqVneq e1 f) => [->|n]; [exists g|exists f].
set k1 := `|kernel e1 (x e1) (y e1)|; set k2 := `|kernel e2 (x e2) (y e2)|.
have cross : - (\prod_e shared e (x e) (y e)) <= k1 * k2.
  apply: le_trans (ler_norm _) _; rewrite normrN.
  apply: le_trans (product_bound ne (fun e => shared_norm e (x e) (y e))) _.
  by rewrite /shared i1 i2.
have bx := kernel_bound e2 (x e2) (y e2); have by_ := kernel_bound e2 (y e2) (x e2).
rewrite kernel_sym -/k2 in by_; rewrite -/k2 in bx.
have sx := kernel_sum e1 ne1; have sy : kernel e1 (y e1) (y e1) + k1 <= 1.
  by rewrite /k1 kernel_sym; apply: kernel_sum; rewrite eq_sym.
rewrite -/k1 in sx.
have k1p : 0 <= k1 by apply: normr_ge0.
set ax := kernel e1 (x e1) (x e1) in sx *; set ay := kernel e1 (y e1) (y e1) in sy *.
set b_x := kernel e2 (x e2) (x e2) in bx *; set b_y := kernel e2 (y e2) (y e2) in by_ *.
apply: le_trans (_ : ax * b_x + ay * b_y + (k1 * k2) *+ 2 <= _).
  apply: ler_add; first by apply: ler_add; apply: whole.
  by rewrite -mulNrn ler_muln2r cross orbT.
apply: le_trans (_ : (ax + k1) * b_x + (ay + k1) * b_y <= _).
  rewrite !mulrDl [X in _ <= X]addrACA ler_add2l mulr2n; apply: ler_add; exact: ler_wpmul2l.
rewrite mulr2n; apply: ler_add.
  by apply: le_trans (_ : b_x <= _); [rewrite -[X in _ <= X]mul1r ler_wpmul2r // pos|exact: top].
by apply: le_trans (_ : b_y <= _); [rewrite -[X in _ <= X]mul1r ler_wpmul2r // pos|exact: top].
Qed.

End Product.

Section Minkowski.
Variables (K : rcfType) (I : finType).
Implicit Types u v : I -> K.

Lemma cauchy_schwarz u v : (\sum_i u i * v i) ^+ 2 <= (\sum_i u i ^+ 2) * (\sum_i v i ^+ 2).
Proof.
have h : 0 <= \sum_i \sum_j (u i * v j - u j * v i) ^+ 2.
  by apply: sumr_ge0 => i _; apply: sumr_ge0 => j _; apply: sqr_ge0.
have e : \sum_i \sum_j (u i * v j - u j * v i) ^+ 2 =
    ((\sum_i u i ^+ 2) * (\sum_i v i ^+ 2) - (\sum_i u i * v i) ^+ 2) *+ 2.
  have split3 i j : (u i * v j - u j * v i) ^+ 2 =
      u i ^+ 2 * v j ^+ 2 + v i ^+ 2 * u j ^+ 2 - (u i * v i * (u j * v j)) *+ 2.
    rewrite sqrrB addrAC !exprMn [u j ^+ 2 * _]mulrC; congr (_ - _ *+ 2).
    by rewrite mulrACA [v j * _]mulrC mulrACA [u j * _]mulrC mulrACA.
  rewrite (eq_bigr (fun i => u i ^+ 2 * (\sum_j v j ^+ 2) + v i ^+ 2 * (\sum_j u j ^+ 2)
      - (u i * v i * (\sum_j u j * v j)) *+ 2)); last first.
    move=> i _; rewrite !mulr_sumr -sumrMnl -big_split -sumrB /=.
    by apply: eq_bigr => j _; apply: split3.
  rewrite sumrB big_split /= -!mulr_suml sumrMnl -mulr_suml mulrnBl.
  by rewrite [X in _ + X - _]mulrC -mulr2n -expr2.
by rewrite e pmulrn_lge0 // subr_ge0 in h.
Qed.

Definition l2 u : K := Num.sqrt (\sum_i u i ^+ 2).

Lemma l2_triangle u v : l2 (fun i => u i + v i) <= l2 u + l2 v.
Proof.
have pos w : 0 <= \sum_i w i ^+ 2 :> K by apply: sumr_ge0 => i _; apply: sqr_ge0.
have sum0 : 0 <= l2 u + l2 v by rewrite addr_ge0 // sqrtr_ge0.
rewrite -(ger0_norm sum0) -sqrtr_sqr; apply: ler_wsqrtr.
rewrite sqrrD /l2 !sqr_sqrtr // (eq_bigr (fun i => u i ^+ 2 + (u i * v i) *+ 2 + v i ^+ 2)); last first.
  by move=> i _; rewrite sqrrD.
rewrite !big_split /= -mulr2n ler_add2r ler_add2l ler_muln2r orFb.
rewrite -sqrtrM //; apply: le_trans (ler_norm _) _.
by rewrite -sqrtr_sqr; apply: ler_wsqrtr; apply: cauchy_schwarz.
Qed.

End Minkowski.

Section Moves.
(* The residuals d that are measured: the cell of a record in table d, the families along its features, and
   the variance of its noise. *)
Variables (K : rcfType) (R C D B W S : finType) (published : R -> B -> W).
Variables (show : D -> R -> C) (families : D -> seq (C -> S)) (variance : D -> K).
Hypothesis variance_pos : forall d, 0 < variance d.

(* What it costs that one record goes from x to y. *)
Definition single_cost (x y : R) : K :=
  \sum_d squared_norm (residual (families d)
    (fun c => (single_move (show d x) (show d y) c)%:~R)) / variance d.

(* The table d of numbers of records, which may be negative. *)
Let shown d (m : R -> int) c : K := \sum_(r | show d r == c) (m r)%:~R.
Let measured (m : R -> int) (i : D * C) : K :=
  residual (families i.1) (shown i.1 m) i.2 / Num.sqrt (variance i.1).

Lemma measured_squares m : \sum_i measured m i ^+ 2 =
  \sum_d squared_norm (residual (families d) (shown d m)) / variance d.
Proof.
rewrite -(pair_bigA _ (fun d c => measured m (d, c) ^+ 2)) /=; apply: eq_bigr => d _.
rewrite /squared_norm mulr_suml; apply: eq_bigr => c _.
by rewrite /measured exprMn exprVn sqr_sqrtr // ltW.
Qed.

(* COST OF ANY MOVE BY SINGLE ONES. X and Y have the same totals and differ in at most a records. If a
   single record that keeps its published value in block b costs at most T, all residuals
   together, the move costs at most a^2 T. *)
Theorem centered_cost_of_move n (X Y : dataset R n) (b : B) (T : K) (a : nat) :
  same_totals published X Y -> (distance X Y <= a)%N -> 0 <= T ->
  (forall x y, published x b = published y b -> single_cost x y <= T) ->
  cost (fun d i => show d (Y i)) (fun d i => show d (X i)) families variance <= T *+ (a ^ 2).
Proof.
move=> same near T0 hT; pose N m := l2 (measured m).
have measured_ext m m' : m =1 m' -> measured m =1 measured m'.
  move=> e i; rewrite /measured; congr (_ / _); apply: residual_ext => c.
  by apply: eq_bigr => r _; rewrite e.
have N_ext m m' : m =1 m' -> N m = N m'.
  by move=> e; congr Num.sqrt; apply: eq_bigr => i _; rewrite (measured_ext _ _ e).
have shown_add d m m' c : shown d (fun r => m r + m' r) c = shown d m c + shown d m' c.
  by rewrite /shown -big_split; apply: eq_bigr => r _; rewrite rmorphD.
have N_triangle m m' : N (fun r => m r + m' r) <= N m + N m'.
  apply: le_trans _ (l2_triangle _ _); apply: ler_wsqrtr; apply: ler_sum => i _.
  rewrite le_eqVlt; apply/orP; left; apply/eqP; congr (_ ^+ 2).
  by rewrite /measured (residual_ext _ (shown_add i.1 m m')) residual_add mulrDl.
have N_zero : N (fun=> 0) = 0.
  rewrite /N /l2 big1 ?sqrtr0 // => i _.
  rewrite /measured (residual_ext _ (T' := fun=> 0)) ?residual_zero ?mul0r ?expr0n // => c.
  by rewrite /shown big1.
have shown_single d x y c : shown d (single_move x y) c = (single_move (show d x) (show d y) c)%:~R.
  have at_cell z : \sum_(r | show d r == c) ((z == r)%:Z)%:~R = ((show d z == c)%:Z)%:~R :> K.
    case: eqP => [e|ne]; last first.
      by rewrite big1 // => r /eqP e; case: eqP => // zr; case: ne; rewrite zr.
    rewrite (bigD1 z) ?e //= eqxx big1 ?addr0 // => r /andP[_ /negbTE].
    by rewrite eq_sym => ->.
  rewrite /shown /single_move rmorphB /= -!at_cell -sumrB.
  by apply: eq_bigr => r _; rewrite rmorphB.
have hN x y : published x b = published y b -> N (single_move x y) <= Num.sqrt T.
  move=> /hT; rewrite /N /l2 measured_squares => h; apply: ler_wsqrtr; apply: le_trans _ h.
  rewrite le_eqVlt; apply/orP; left; apply/eqP; apply: eq_bigr => d _; congr (_ / _).
  by apply: squared_norm_ext; apply: residual_ext => c; apply: shown_single.
have h := pairing N_ext N_triangle N_zero same near (sqrtr_ge0 T) hN.
have shown_table d (Z : dataset R n) c :
    shown d (table Z) c = (table (fun i => show d (Z i)) c)%:~R.
  have cardE : #|[set i | show d (Z i) == c]| = (\sum_(r | show d r == c) #|[set i | Z i == r]|)%N.
    rewrite -sum1_card (eq_bigl (fun i => show d (Z i) == c)); last by move=> i; rewrite inE.
    rewrite (partition_big Z (fun r => show d r == c)) //; apply: eq_bigr => r /eqP e.
    rewrite -sum1_card; apply: eq_bigl => i; rewrite inE.
    by case: (Z i =P r) => [->|_]; rewrite ?e ?eqxx ?andbF.
  rewrite /shown /table cardE -pmulrn natr_sum; apply: eq_bigr => r _.
  by rewrite -pmulrn.
have -> : cost (fun d i => show d (Y i)) (fun d i => show d (X i)) families variance =
    N (fun c => table Y c - table X c) ^+ 2.
  rewrite /N /l2 sqr_sqrtr; last by apply: sumr_ge0 => i _; apply: sqr_ge0.
  rewrite measured_squares.
  apply: eq_bigr => d _; congr (_ / _); apply: squared_norm_ext => c.
  rewrite /residual_of -residual_sub; apply: residual_ext => c'.
  rewrite /table_of -!shown_table /shown -sumrB.
  by apply: eq_bigr => r _; rewrite rmorphB.
apply: le_trans (_ : (Num.sqrt T *+ a) ^+ 2 <= _).
  by rewrite ler_sqr ?nnegrE ?sqrtr_ge0 ?mulrn_wge0 ?sqrtr_ge0.
by rewrite exprMn_n sqr_sqrtr.
Qed.

End Moves.
